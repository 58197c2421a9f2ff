//! Whether a licence expression (SPDX, and the older `A/B`) can be met with a list of allowed licences.

/// True if some choice of the expression needs only what is allowed.
pub(crate) fn is_met(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut reader = Reader { words: &words, at: 0, allowed };
    let met = reader.either();
    met && reader.at == words.len()
}

struct Reader<'a> {
    words: &'a [&'a str],
    at: usize,
    allowed: &'a [String],
}

impl Reader<'_> {
    fn take(&mut self, word: &str) -> bool {
        let there = self.words.get(self.at) == Some(&word);
        if there {
            self.at += 1;
        }
        there
    }

    fn either(&mut self) -> bool {
        let mut met = self.both();
        while self.take("OR") {
            met |= self.both();
        }
        met
    }

    fn both(&mut self) -> bool {
        let mut met = self.one();
        while self.take("AND") {
            met &= self.one();
        }
        met
    }

    fn one(&mut self) -> bool {
        if self.take("(") {
            let met = self.either();
            return self.take(")") && met;
        }
        let Some(name) = self.words.get(self.at) else { return false };
        self.at += 1;
        if self.take("WITH") {
            let exception = self.words.get(self.at).copied().unwrap_or_default();
            self.at += 1;
            let whole = format!("{name} WITH {exception}");
            return self.allowed.contains(&whole);
        }
        self.allowed.iter().any(|licence| licence == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_met_by_choice_and_not_by_half() {
        let allowed = ["MIT".to_owned(), "ISC".to_owned(), "Apache-2.0 WITH LLVM-exception".to_owned()];
        for (expression, met) in [
            ("MIT", true),
            ("Apache-2.0", false),
            ("Apache-2.0/MIT", true),
            ("MIT AND ISC", true),
            ("MIT AND GPL-3.0", false),
            ("(GPL-3.0 OR MIT) AND ISC", true),
            ("GPL-3.0 OR (MIT AND ISC)", true),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("Apache-2.0 WITH other-exception OR GPL-3.0", false),
            ("(MIT", false),
            ("", false),
        ] {
            assert_eq!(is_met(expression, &allowed), met, "{expression}");
        }
    }
}
