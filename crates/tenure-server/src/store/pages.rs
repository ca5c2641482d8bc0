//! Reads the file of the checkpoint without LMDB, and believes nothing of it.
//!
//! LMDB maps the file into memory and trusts it: a damaged page number there is a crash without a word. So the file
//! is walked here first, page by page, before LMDB gets to see it. Each row comes with its offset, and what is
//! still readable of a damaged file can be read.
//!
//! What is checked: both heads, that every page is where its number says, that nodes lie within their page, that no
//! page is used twice, free ones included (a page that is free and used would be overwritten by the next commit),
//! that keys are where a search for them would look, and that there are as many rows as the file says. What rows contain is the reader's business; they have
//! checksums of their own.

use std::cmp::Ordering;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

const MAGIC: u32 = 0xBEEF_C0DE;
const VERSION: u32 = 1;
const PAGE_HEADER: usize = 16;
const NO_PAGE: u64 = u64::MAX;

const BRANCH: u16 = 1;
const LEAF: u16 = 2;
const OVERFLOW: u16 = 4;
const KINDS: u16 = 0x6f;
/// How the tree of free pages is marked.
const INTEGER_KEYS: u16 = 8;
/// The value is on pages of its own.
const BIG: u16 = 1;

/// What the walk meets, in the order of keys.
pub(crate) enum Met<'a> {
    Row {
        /// Of the value, in the file.
        offset: u64,
        key: &'a [u8],
        value: &'a [u8],
    },
    /// The rows behind this place cannot be read. Going on skips them.
    Damage { offset: u64, what: String },
}

/// Walks the file. `meet` may end the walk with an error of its own.
pub(crate) fn walk<E: From<io::Error>>(
    path: &Path,
    mut meet: impl FnMut(Met<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    if len == 0 {
        // A first start was interrupted before LMDB wrote anything.
        return Ok(());
    }
    let head = match read_head(&file, len)? {
        Ok(head) => head,
        Err((offset, what)) => return meet(Met::Damage { offset, what }),
    };
    let page_count = head.last_page + 1;
    let words =
        usize::try_from(page_count.min(len / head.page_bytes as u64 + 1) / 64 + 1).unwrap_or(usize::MAX);
    let mut walk = Walk { file, len, page_bytes: head.page_bytes, page_count, used: vec![0; words], rows: 0 };
    walk.tree(&head.rows, Tree::Rows, &mut meet)?;
    if walk.rows != head.rows.entries {
        let what = format!("there should be {} rows and {} can be reached", head.rows.entries, walk.rows);
        meet(Met::Damage { offset: head.offset, what })?;
    }
    walk.tree(&head.free, Tree::Free, &mut meet)
}

struct Head {
    /// Where it stands.
    offset: u64,
    page_bytes: usize,
    free: TreeHead,
    rows: TreeHead,
    last_page: u64,
    transaction: u64,
}

struct TreeHead {
    flags: u16,
    depth: u16,
    entries: u64,
    root: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tree {
    Rows,
    Free,
}

impl Tree {
    /// How this tree sorts its keys: those of free pages are numbers.
    fn compare(self, left: &[u8], right: &[u8]) -> Ordering {
        match self {
            Tree::Free if left.len() == 8 && right.len() == 8 => u64_at(left, 0).cmp(&u64_at(right, 0)),
            Tree::Rows | Tree::Free => left.cmp(right),
        }
    }
}

type Place = (u64, String);

/// The newer of the two heads: commits write them in turn.
fn read_head(file: &File, len: u64) -> io::Result<Result<Head, Place>> {
    let mut first = match read_one_head(file, len, 0)? {
        Ok(head) => head,
        Err(what) => return Ok(Err((0, what))),
    };
    let second_at = first.page_bytes as u64;
    match read_one_head(file, len, second_at)? {
        Ok(second) if second.page_bytes != first.page_bytes => {
            return Ok(Err((second_at, "the two heads disagree about the size of pages".to_owned())));
        }
        Ok(second) if (first.transaction, second.transaction) == (0, 0) => {}
        Ok(second) if first.transaction.abs_diff(second.transaction) != 1 => {
            return Ok(Err((0, "the two heads are not of two commits in a row".to_owned())));
        }
        Ok(second) if second.transaction > first.transaction => first = second,
        Ok(_) => {}
        // LMDB would take the first one then, and with it perhaps a state before the last commit.
        Err(what) => return Ok(Err((second_at, what))),
    }
    Ok(Ok(first))
}

fn read_one_head(file: &File, len: u64, offset: u64) -> io::Result<Result<Head, String>> {
    let mut page = [0; PAGE_HEADER + 136];
    if offset + page.len() as u64 > len {
        return Ok(Err("the file ends in its head".to_owned()));
    }
    file.read_exact_at(&mut page, offset)?;
    let head = &page[PAGE_HEADER..];
    if u32_at(head, 0) != MAGIC {
        return Ok(Err("this is not the head of an LMDB file".to_owned()));
    }
    if u32_at(head, 4) != VERSION {
        return Ok(Err(format!(
            "version {} of LMDB's format, which this build does not read",
            u32_at(head, 4)
        )));
    }
    let tree = |at: usize| TreeHead {
        flags: u16_at(head, at + 4),
        depth: u16_at(head, at + 6),
        entries: u64_at(head, at + 32),
        root: u64_at(head, at + 40),
    };
    let page_bytes = u32_at(head, 24) as usize;
    if !page_bytes.is_power_of_two() || !(512..=65_536).contains(&page_bytes) {
        return Ok(Err(format!("pages of {page_bytes} bytes")));
    }
    let last_page = u64_at(head, 120);
    // Pages at the end may be missing if they are free, but not very many.
    if last_page.saturating_mul(page_bytes as u64) > 2 * len + (1 << 30) {
        return Ok(Err(format!("page {last_page} would be the last one of a file of {len} bytes")));
    }
    let (free, rows) = (tree(24), tree(72));
    if (free.flags, rows.flags) != (INTEGER_KEYS, 0) {
        return Ok(Err(format!("trees of kinds {:#x} and {:#x}", free.flags, rows.flags)));
    }
    Ok(Ok(Head { offset, page_bytes, free, rows, last_page, transaction: u64_at(head, 128) }))
}

struct Walk {
    file: File,
    len: u64,
    page_bytes: usize,
    page_count: u64,
    /// One bit for each page that something refers to.
    used: Vec<u64>,
    rows: u64,
}

impl Walk {
    fn tree<E: From<io::Error>>(
        &mut self,
        head: &TreeHead,
        tree: Tree,
        meet: &mut impl FnMut(Met<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if head.root == NO_PAGE {
            return Ok(());
        }
        let within = Within { depth_left: u32::from(head.depth), low: None, high: None };
        self.subtree(head.root, tree, within, meet)
    }

    fn subtree<E: From<io::Error>>(
        &mut self,
        number: u64,
        tree: Tree,
        within: Within<'_>,
        meet: &mut impl FnMut(Met<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let page = match self.page(number, within.depth_left)? {
            Ok(page) => page,
            Err((offset, what)) => return meet(Met::Damage { offset, what }),
        };
        let at = number * self.page_bytes as u64;
        let nodes: Vec<_> = page.nodes().collect();
        for (index, (node_at, node)) in nodes.iter().enumerate() {
            let offset = at + *node_at as u64;
            let Some(node) = node else {
                let what = "a node that does not lie within its page".to_owned();
                meet(Met::Damage { offset, what })?;
                continue;
            };
            let key = page.key(node);
            if page.is_branch {
                // The first key of a branch stands for everything below the second one.
                let low = if index == 0 { within.low } else { Some(key) };
                let next = nodes.get(index + 1).and_then(|(_, node)| node.as_ref());
                let high = next.map_or(within.high, |next| Some(page.key(next)));
                let below = Within { depth_left: within.depth_left - 1, low, high };
                self.subtree(node.child, tree, below, meet)?;
                continue;
            }
            let is_low = within.low.is_some_and(|low| tree.compare(key, low).is_lt());
            if is_low || within.high.is_some_and(|high| tree.compare(key, high).is_ge()) {
                let what = "a key that a search would look for elsewhere".to_owned();
                meet(Met::Damage { offset, what })?;
                continue;
            }
            self.leaf(at, &page, node, tree, meet)?;
        }
        Ok(())
    }

    fn leaf<E: From<io::Error>>(
        &mut self,
        page_at: u64,
        page: &Page,
        node: &Node,
        tree: Tree,
        meet: &mut impl FnMut(Met<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let big;
        let (offset, value) = if node.is_big {
            match self.big(&page.bytes, node)? {
                Ok((offset, value)) => {
                    big = value;
                    (offset, big.as_slice())
                }
                Err((offset, what)) => return meet(Met::Damage { offset, what }),
            }
        } else {
            let value = &page.bytes[node.value_at..node.value_at + node.value_len];
            (page_at + node.value_at as u64, value)
        };
        match tree {
            Tree::Rows => {
                self.rows += 1;
                meet(Met::Row { offset, key: page.key(node), value })
            }
            Tree::Free => match self.free(value) {
                Ok(()) => Ok(()),
                Err(what) => meet(Met::Damage { offset, what }),
            },
        }
    }

    /// Reads a page of a tree.
    fn page(&mut self, number: u64, depth_left: u32) -> io::Result<Result<Page, Place>> {
        let offset = number.saturating_mul(self.page_bytes as u64);
        if let Err(what) = self.take(number, 1) {
            return Ok(Err((offset, what)));
        }
        if offset + self.page_bytes as u64 > self.len {
            return Ok(Err((offset, "the file ends before this page".to_owned())));
        }
        let mut bytes = vec![0; self.page_bytes];
        self.file.read_exact_at(&mut bytes, offset)?;
        let kind = u16_at(&bytes, 10) & KINDS;
        let (lower, upper) = (usize::from(u16_at(&bytes, 12)), usize::from(u16_at(&bytes, 14)));
        let what = if u64_at(&bytes, 0) != number {
            format!("this page says that it is page {}, not {number}", u64_at(&bytes, 0))
        } else if kind != BRANCH && kind != LEAF {
            format!("a page of kind {kind:#x} in a tree")
        } else if lower < PAGE_HEADER || lower % 2 != 0 || lower > upper || upper > self.page_bytes {
            "a page whose bounds contradict each other".to_owned()
        } else if (kind == BRANCH) != (depth_left > 1) {
            "the tree is not as deep as its head says".to_owned()
        } else {
            let is_branch = kind == BRANCH;
            return Ok(Ok(Page { node_count: (lower - PAGE_HEADER) / 2, lower, bytes, is_branch }));
        };
        Ok(Err((offset, what)))
    }

    /// Reads a value that has pages of its own.
    fn big(&mut self, page: &[u8], node: &Node) -> io::Result<Result<(u64, Vec<u8>), Place>> {
        let number = u64_at(page, node.value_at);
        let offset = number.saturating_mul(self.page_bytes as u64);
        let pages = (PAGE_HEADER + node.value_len).div_ceil(self.page_bytes) as u64;
        if let Err(what) = self.take(number, pages) {
            return Ok(Err((offset, what)));
        }
        let end = offset + (PAGE_HEADER + node.value_len) as u64;
        if end > self.len {
            return Ok(Err((offset, "the file ends within this value".to_owned())));
        }
        let mut header = [0; PAGE_HEADER];
        self.file.read_exact_at(&mut header, offset)?;
        let sound = u64_at(&header, 0) == number
            && u16_at(&header, 10) & KINDS == OVERFLOW
            && u64::from(u32_at(&header, 12)) == pages;
        if !sound {
            return Ok(Err((offset, "this page is not the first one of a long value".to_owned())));
        }
        let mut value = vec![0; node.value_len];
        self.file.read_exact_at(&mut value, offset + PAGE_HEADER as u64)?;
        Ok(Ok((offset + PAGE_HEADER as u64, value)))
    }

    /// Checks one list of free pages: how many, then their numbers.
    fn free(&mut self, list: &[u8]) -> Result<(), String> {
        if list.len() < 8 || !list.len().is_multiple_of(8) || (list.len() / 8 - 1) as u64 != u64_at(list, 0) {
            return Err("a list of free pages whose length is wrong".to_owned());
        }
        list.chunks_exact(8).skip(1).try_for_each(|number| self.take(u64_at(number, 0), 1))
    }

    /// Notes that these pages are referred to, which must happen only once.
    fn take(&mut self, first: u64, count: u64) -> Result<(), String> {
        let end = first.saturating_add(count);
        if first < 2 || end > self.page_count {
            return Err(format!(
                "pages {first} to {end} are outside of the file's {} pages",
                self.page_count
            ));
        }
        for number in first..end {
            // Free pages at the end need not be in the file.
            let word = usize::try_from(number / 64).unwrap_or(usize::MAX);
            let Some(word) = self.used.get_mut(word) else { continue };
            let bit = 1 << (number % 64);
            if *word & bit != 0 {
                return Err(format!("page {number} is used twice"));
            }
            *word |= bit;
        }
        Ok(())
    }
}

/// Where in its tree a page is.
#[derive(Clone, Copy)]
struct Within<'a> {
    /// Levels from here to the leaves, this one counted.
    depth_left: u32,
    /// All keys are at or above this one, and below the other one.
    low: Option<&'a [u8]>,
    high: Option<&'a [u8]>,
}

struct Page {
    bytes: Vec<u8>,
    is_branch: bool,
    node_count: usize,
    lower: usize,
}

struct Node {
    key_at: usize,
    key_len: usize,
    value_at: usize,
    value_len: usize,
    is_big: bool,
    /// In a branch.
    child: u64,
}

impl Page {
    fn key(&self, node: &Node) -> &[u8] {
        &self.bytes[node.key_at..node.key_at + node.key_len]
    }

    /// Each node with its place; `None` where it does not lie within the page.
    fn nodes(&self) -> impl Iterator<Item = (usize, Option<Node>)> {
        (0..self.node_count).map(|index| {
            let at = usize::from(u16_at(&self.bytes, PAGE_HEADER + 2 * index));
            (at, self.node(at))
        })
    }

    fn node(&self, at: usize) -> Option<Node> {
        const NODE_HEADER: usize = 8;
        let header = self.bytes.get(at..at + NODE_HEADER).filter(|_| at >= self.lower)?;
        let (low, high) = (u16_at(header, 0), u16_at(header, 2));
        let (flags, key_len) = (u16_at(header, 4), usize::from(u16_at(header, 6)));
        let number = u64::from(low) | u64::from(high) << 16;
        let key_at = at + NODE_HEADER;
        let value_at = key_at + key_len;
        let value_len = usize::try_from(number).ok()?;
        let is_big = !self.is_branch && flags & BIG != 0;
        let inline = if self.is_branch {
            0
        } else if is_big {
            8
        } else if flags != 0 {
            // Trees within rows and several values for one key: not in our files.
            return None;
        } else {
            value_len
        };
        let child = number | u64::from(flags) << 32;
        let fits = value_at + inline <= self.bytes.len();
        fits.then_some(Node { key_at, key_len, value_at, value_len, is_big, child })
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes were sliced"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes were sliced"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes were sliced"))
}
