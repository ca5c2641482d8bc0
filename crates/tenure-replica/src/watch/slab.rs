//! Rows under small numbers that are used again: four bytes name a watcher wherever it is listed.

pub(super) struct Slab<T> {
    rows: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { rows: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(super) fn insert(&mut self, row: T) -> u32 {
        if let Some(key) = self.free.pop() {
            self.rows[key as usize] = Some(row);
            return key;
        }
        let key = u32::try_from(self.rows.len()).expect("memory ends before four billion watchers");
        self.rows.push(Some(row));
        key
    }

    pub(super) fn remove(&mut self, key: u32) -> T {
        self.free.push(key);
        self.rows[key as usize].take().expect("a listed key is in use")
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len() - self.free.len()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = u32> {
        self.rows.iter().enumerate().filter(|(_, row)| row.is_some()).map(|(key, _)| key as u32)
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, key: u32) -> &T {
        self.rows[key as usize].as_ref().expect("a listed key is in use")
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, key: u32) -> &mut T {
        self.rows[key as usize].as_mut().expect("a listed key is in use")
    }
}
