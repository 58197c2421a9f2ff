//! Reads how many tests ran from what test runners print.

/// Tests that passed and failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// `Summary [  12.3s] 41 tests run: 39 passed (1 slow), 1 failed, 1 timed out, 7 skipped`
pub(crate) fn nextest(line: &str) -> Option<Counts> {
    let line = line.trim_start();
    if !line.starts_with("Summary [") {
        return None;
    }
    Some(sum(&without_brackets(line.split_once("run:")?.1), &["failed", "timed", "exec"]))
}

/// `test result: ok. 12 passed; 0 failed; 1 ignored; …`
pub(crate) fn cargo_test(line: &str) -> Option<Counts> {
    let rest = line.trim_start().strip_prefix("test result:")?.split_once(". ")?.1;
    Some(sum(&rest.replace(';', ","), &["failed"]))
}

/// `Tests  1 failed | 34 passed (35)`
pub(crate) fn vitest(line: &str) -> Option<Counts> {
    let rest = line.trim_start().strip_prefix("Tests ")?;
    Some(sum(&without_brackets(rest).replace('|', ","), &["failed"]))
}

/// The end of Python's unittest: `Ran 12 tests in 3.1s`, then `OK` or `FAILED (failures=1, errors=2)`.
#[derive(Debug, Default)]
pub(crate) struct Unittest {
    ran: u64,
}

impl Unittest {
    pub(crate) fn line(&mut self, line: &str) -> Option<Counts> {
        if let Some(rest) = line.strip_prefix("Ran ") {
            self.ran = rest.split_whitespace().next()?.parse().ok()?;
            return None;
        }
        if line == "OK" || line.starts_with("OK (") {
            return Some(Counts { passed: self.ran.saturating_sub(named(line, "skipped=")), failed: 0 });
        }
        if line.starts_with("FAILED (") {
            let failed = named(line, "failures=") + named(line, "errors=");
            let passed = self.ran.saturating_sub(failed + named(line, "skipped="));
            return Some(Counts { passed, failed });
        }
        None
    }
}

fn named(line: &str, name: &str) -> u64 {
    let Some((_, rest)) = line.split_once(name) else { return 0 };
    rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0)
}

fn without_brackets(text: &str) -> String {
    let mut depth = 0_u32;
    text.chars()
        .filter(|c| {
            match c {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => return depth == 0,
            }
            false
        })
        .collect()
}

/// Sums `<number> <word>` pairs between commas.
fn sum(text: &str, bad: &[&str]) -> Counts {
    let mut counts = Counts::default();
    for part in text.split(',') {
        let mut words = part.split_whitespace();
        let (Some(Ok(number)), Some(word)) = (words.next().map(str::parse::<u64>), words.next()) else {
            continue;
        };
        if word == "passed" {
            counts.passed += number;
        } else if bad.contains(&word) {
            counts.failed += number;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(passed: u64, failed: u64) -> Option<Counts> {
        Some(Counts { passed, failed })
    }

    #[test]
    fn the_closing_lines_of_the_runners_are_understood() {
        assert_eq!(nextest("     Summary [   0.114s] 16 tests run: 16 passed, 3 skipped"), counts(16, 0));
        let mixed = "Summary [  9.1s] 41/50 tests run: 38 passed (1 slow, 2 leaky), 1 failed, 1 timed out, 1 exec failed, 7 skipped";
        assert_eq!(nextest(mixed), counts(38, 3));
        assert_eq!(nextest("  PASS [ 0.1s] a_summary_of_tests"), None);
        assert_eq!(
            cargo_test("test result: FAILED. 12 passed; 2 failed; 1 ignored; 0 measured"),
            counts(12, 2)
        );
        assert_eq!(vitest("      Tests  1 failed | 34 passed (35)"), counts(34, 1));
        assert_eq!(vitest("      Tests  35 passed (35)"), counts(35, 0));
        assert_eq!(vitest(" Test Files  5 passed (5)"), None);
    }

    #[test]
    fn unittest_tells_its_count_before_its_verdict() {
        let mut reader = Unittest::default();
        assert_eq!(reader.line("Ran 12 tests in 3.1s"), None);
        assert_eq!(reader.line("FAILED (failures=1, errors=2)"), counts(9, 3));
        let mut reader = Unittest::default();
        assert_eq!(reader.line("Ran 5 tests in 0.1s"), None);
        assert_eq!(reader.line("OK (skipped=1)"), counts(4, 0));
    }
}
