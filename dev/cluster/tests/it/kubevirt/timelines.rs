//! The order in which states are shown, against what was recorded.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn placeholder_of_the_timelines() {
    let _lab = lab().await;
}
