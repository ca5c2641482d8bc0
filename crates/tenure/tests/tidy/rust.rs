//! Enough of Rust's grammar to tell code from comments, literals and tests.

/// The text with comments and the insides of literals blanked out; lines and columns stay where they are.
pub fn code(text: &str) -> String {
    let source: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < source.len() {
        let end = match source[at] {
            '/' if source.get(at + 1) == Some(&'/') => line_end(&source, at),
            '/' if source.get(at + 1) == Some(&'*') => comment_end(&source, at),
            '"' => string_end(&source, at),
            'r' if !follows_a_word(&source, at) => match raw_string_end(&source, at) {
                Some(end) => end,
                None => at,
            },
            '\'' => char_end(&source, at).unwrap_or(at),
            _ => at,
        };
        if end == at {
            code.push(source[at]);
            at += 1;
        }
        for &blanked in &source[at..end.max(at)] {
            code.push(if blanked == '\n' { '\n' } else { ' ' });
        }
        at = end.max(at);
    }
    code
}

/// The code without inline modules of tests.
pub fn code_without_tests(text: &str) -> String {
    let mut code = code(text);
    while let Some(start) = code.find("#[cfg(test)]\nmod ") {
        let Some(open) = code[start..].find(['{', ';']).map(|open| start + open) else { break };
        let end = if code.as_bytes()[open] == b';' { open + 1 } else { block_end(&code, open) };
        code.replace_range(start..end, "");
    }
    code
}

/// Whether the code names `word`, not only a longer word that contains it.
pub fn names(code: &str, word: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        let open = word.ends_with(is_word) && after.is_some_and(is_word);
        !(open || word.starts_with(is_word) && before.is_some_and(is_word))
    })
}

/// Whether the file holds nothing but tests, so that rules for what is shipped do not bind it.
pub fn is_test(name: &str) -> bool {
    name.ends_with("/tests.rs")
        || name.contains("/tests/")
        || name.contains("/examples/")
        || name.contains("/benches/")
}

fn line_end(source: &[char], at: usize) -> usize {
    source[at..].iter().position(|&c| c == '\n').map_or(source.len(), |length| at + length)
}

fn comment_end(source: &[char], mut at: usize) -> usize {
    let mut depth = 0;
    while at < source.len() {
        match (source[at], source.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at.min(source.len())
}

fn string_end(source: &[char], mut at: usize) -> usize {
    at += 1;
    while at < source.len() && source[at] != '"' {
        at += if source[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(source.len())
}

fn raw_string_end(source: &[char], at: usize) -> Option<usize> {
    let hashes = source[at + 1..].iter().take_while(|&&c| c == '#').count();
    let open = at + 1 + hashes;
    if source.get(open) != Some(&'"') {
        return None;
    }
    let closes = |end: usize| {
        source[end] == '"' && source[end + 1..].iter().take(hashes).filter(|&&c| c == '#').count() == hashes
    };
    (open + 1..source.len()).find(|&end| closes(end)).map(|end| end + 1 + hashes)
}

/// The end of a literal like `'x'`; none for a lifetime.
fn char_end(source: &[char], at: usize) -> Option<usize> {
    match source.get(at + 1)? {
        '\\' => source[at + 3..].iter().position(|&c| c == '\'').map(|length| at + 3 + length + 1),
        _ => (source.get(at + 2) == Some(&'\'')).then_some(at + 3),
    }
}

/// `r` begins a raw string unless it ends a word; `br` does too.
fn follows_a_word(source: &[char], at: usize) -> bool {
    let Some(before) = at.checked_sub(1).map(|before| source[before]) else { return false };
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let byte_string = before == 'b' && at.checked_sub(2).is_none_or(|two| !is_word(source[two]));
    is_word(before) && !byte_string
}

fn block_end(code: &str, open: usize) -> usize {
    let mut depth = 0;
    for (offset, byte) in code[open..].bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return open + offset + 1;
        }
    }
    code.len()
}

#[test]
fn code_is_told_from_comments_and_literals() {
    let text = r####"
a /* b /* c */ d */ e // f
"g \" h" r"i" br##"j "# k"## 'l' '\'' '\u{1}' &'static m<'n> for_r"o"
"####;
    let kept: Vec<String> = code(text).split_whitespace().map(str::to_string).collect();
    assert_eq!(kept, ["a", "e", "b", "&'static", "m<'n>", "for_r"]);
    assert_eq!(code(text).lines().count(), text.lines().count());
}

#[test]
fn inline_tests_are_cut_out() {
    let text =
        "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() { '}'; }\n}\nfn c() {}\n#[cfg(test)]\nmod more;\n";
    let kept: Vec<String> = code_without_tests(text).lines().map(str::to_string).collect();
    assert_eq!(kept, ["fn a() {}", "", "fn c() {}", ""]);
}

#[test]
fn a_longer_word_is_not_the_word() {
    assert!(
        names("use raft::Node", "raft::") && names("raft::Node", "raft::") && names("(unsafe {", "unsafe")
    );
    assert!(!names("my_raft::Node", "raft::") && !names("unsafe_code", "unsafe"));
}
