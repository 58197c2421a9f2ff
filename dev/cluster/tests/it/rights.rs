//! rights
