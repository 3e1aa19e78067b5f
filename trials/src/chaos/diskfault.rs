//! F8 and F9: syncs that fail, and a disk without space.
