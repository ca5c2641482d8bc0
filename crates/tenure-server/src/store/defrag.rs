//! Giving space back: a copy of the store without its free pages takes the place of the file.

use std::fs;
use std::io;

use heed::CompactionOption;

use crate::datadir::create_file;
use crate::disk::{abort, is_full};
use crate::store::{Store, StoreError, make_durable, open_env};

impl Store {
    /// Copies, closes, swaps and opens again. Nobody else reads or commits meanwhile. After an error the store is
    /// as it was.
    pub(crate) fn defragment(&self) -> Result<(), StoreError> {
        let path = self.path();
        let copy = self.dir.join("data.new");
        let mut open = self.env.write().expect("nothing panics while it holds this lock");
        let env = open.as_ref().expect("open until it is closed");
        let copied = (|| {
            let mut file = create_file(&copy)?;
            env.copy_to_file(&mut file, CompactionOption::Enabled).map_err(|error| match error {
                heed::Error::Io(error) => error,
                other => io::Error::other(other.to_string()),
            })?;
            make_durable(&file, &self.dir)
        })();
        if let Err(error) = copied {
            // Half a copy is no use, and its space is.
            let _ = fs::remove_file(&copy);
            if is_full(&error) {
                return Err(StoreError::Full(path));
            }
            return Err(StoreError::Failed { path, what: "cannot copy it", error: error.to_string() });
        }
        if let Some(env) = open.take() {
            env.prepare_for_closing().wait();
        }
        let swapped = fs::rename(&copy, &path).and_then(|()| crate::datadir::sync_dir(&self.dir));
        if let Err(error) = swapped {
            abort("cannot put the copy in the place of", &path, &error);
        }
        match open_env(&self.dir, self.map_bytes, self.sync) {
            Ok(env) => *open = Some(env),
            Err(error) => abort("cannot open it again", &path, &error),
        }
        Ok(())
    }
}
