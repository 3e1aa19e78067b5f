//! Small files beside the log: how the cluster began, how often the node has started, whom it met.
//!
//! Text with a checksum, like `IDENTITY`; each is replaced as a whole, and durable before the call
//! returns. The directory must be locked: call these while the [`Wal`](crate::Wal) is open.

use std::io::{self, IoSlice};

use crate::disk::{Access, Disk, DiskFile};
use crate::error::{Context, Error};
use crate::limits::NOTE_BYTES_MAX;

pub(crate) const BOOT_FILE: &str = "BOOT";
pub(crate) const BOOT_TEMPORARY: &str = "BOOT.new";
pub(crate) const MEMBERS_FILE: &str = "MEMBERS";
pub(crate) const MEMBERS_TEMPORARY: &str = "MEMBERS.new";

pub(crate) const FOUNDING_FILE: &str = "FOUNDING";
pub(crate) const FOUNDING_TEMPORARY: &str = "FOUNDING.new";

const FOUNDING_TITLE: &str = "millrace founding 1";
const BOOT_TITLE: &str = "millrace starts 1";
/// 2 knows starts, 3 stamps. 3 is written only where a stamp is not that of a start: older programs read 2.
const MEMBERS_TITLE: &str = "millrace members 3";
const MEMBERS_TITLE_2: &str = "millrace members 2";
const MEMBERS_TITLE_1: &str = "millrace members 1";

/// The stamp of this directory: a number that grows with every start, and while the node runs.
#[derive(Debug)]
pub struct Boot;

impl Boot {
    /// Counts this start, and makes that durable: no two starts get the same number. The first is 1.
    pub fn next<D: Disk>(disk: &D) -> Result<u64, Error> {
        Self::next_from(disk, 1)
    }

    /// The same, but at least `least`: a node whose directory was replaced must not count again what it
    /// counted in the one before.
    pub fn next_from<D: Disk>(disk: &D, least: u64) -> Result<u64, Error> {
        let last = Self::last(disk)?;
        let boot = least.max(last + 1);
        match write(disk, BOOT_FILE, BOOT_TEMPORARY, BOOT_TITLE, &format!("{boot}\n")) {
            Err(error) if error.is_full() && Self::is_as_long(last, boot) => {
                Self::overwrite(disk, boot)?;
            }
            written => written?,
        }
        Ok(boot)
    }

    /// Counts on while the node runs, and makes that durable. A full disk does not matter where `stamp` is as long
    /// as the one before. Refused if the file has a number that is not below: the caller did not write it.
    pub fn renew<D: Disk>(disk: &D, stamp: u64) -> Result<(), Error> {
        let last = Self::last(disk)?;
        if stamp <= last {
            return Err(Error::refused(BOOT_FILE, Self::overwritten(last, stamp)));
        }
        match Self::is_as_long(last, stamp) {
            true => Self::overwrite(disk, stamp),
            false => write(disk, BOOT_FILE, BOOT_TEMPORARY, BOOT_TITLE, &format!("{stamp}\n")),
        }
    }

    fn overwritten(found: u64, stamp: u64) -> String {
        format!(
            "it has the number {found}, which this running node did not write: the node's next number is {stamp}. \
             Something else has written the file. Keep everything else off the data directory of a running node \
             (backups, copies, other programs). If another node may have been started from this directory or from a \
             copy of it, leave only one of the two running; then start this node again: it counts on from {found}"
        )
    }

    fn is_as_long(last: u64, boot: u64) -> bool {
        last > 0 && last.to_string().len() == boot.to_string().len()
    }

    /// Counts without a new byte, for a disk that is full: all of the text lies in one sector.
    fn overwrite<D: Disk>(disk: &D, boot: u64) -> Result<(), Error> {
        let text = encode(BOOT_TITLE, &format!("{boot}\n"));
        let file = disk.open(BOOT_FILE, Access::Write).at("open", BOOT_FILE)?;
        file.write_at(0, &[IoSlice::new(text.as_bytes())]).at("write", BOOT_FILE)?;
        file.sync_data().at("sync", BOOT_FILE).map(|_| ())
    }

    /// The newest stamp: that of the last start, or what was renewed since. 0: there was no start.
    pub fn last<D: Disk>(disk: &D) -> Result<u64, Error> {
        let Some(body) = read(disk, BOOT_FILE, BOOT_TITLE)? else { return Ok(0) };
        let number = body.trim_end().parse::<u64>().ok().filter(|boot| *boot < u64::MAX);
        number.ok_or_else(|| Error::damaged(BOOT_FILE, 0, "it has no number"))
    }
}

/// Another node of the cluster, as it was last known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub node: u64,
    /// `None`: it was never met.
    pub incarnation: Option<u64>,
    /// The latest start of it that is known. 0: none.
    pub boot: u64,
    /// The newest stamp of its directory that is known: at least that of the start.
    pub stamp: u64,
    /// Where its peer port is: without spaces.
    pub address: String,
}

impl Member {
    /// The members that were last written; none if there never were any.
    pub fn load<D: Disk>(disk: &D) -> Result<Vec<Self>, Error> {
        let mut body = read(disk, MEMBERS_FILE, MEMBERS_TITLE);
        for older in [MEMBERS_TITLE_2, MEMBERS_TITLE_1] {
            if matches!(body, Err(Error::Refused { .. })) {
                body = read(disk, MEMBERS_FILE, older);
            }
        }
        let Some(body) = body? else { return Ok(Vec::new()) };
        let damaged = || Error::damaged(MEMBERS_FILE, 0, "it has a line that is no member");
        body.lines().map(|line| Self::decode(line).ok_or_else(damaged)).collect()
    }

    /// Writes down the members in place of those before.
    pub fn store<D: Disk>(disk: &D, members: &[Self]) -> Result<(), Error> {
        let has_stamps = members.iter().any(|member| member.stamp > member.boot);
        let title = if has_stamps { MEMBERS_TITLE } else { MEMBERS_TITLE_2 };
        let body: String = members.iter().map(|member| member.encode(has_stamps)).collect();
        write(disk, MEMBERS_FILE, MEMBERS_TEMPORARY, title, &body)
    }

    fn encode(&self, has_stamps: bool) -> String {
        let Self { node, incarnation, boot, stamp, address } = self;
        let incarnation = incarnation.map_or("-".to_owned(), |number| format!("{number:016x}"));
        match has_stamps {
            true => format!("{node} {incarnation} {address} {boot} {stamp}\n"),
            false => format!("{node} {incarnation} {address} {boot}\n"),
        }
    }

    fn decode(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let node = words.next()?.parse().ok()?;
        let incarnation = match words.next()? {
            "-" => None,
            number => Some(u64::from_str_radix(number, 16).ok()?),
        };
        let address = words.next()?.to_owned();
        let boot = words.next().map_or(Some(0), |boot| boot.parse().ok())?;
        let stamp = words.next().map_or(Some(boot), |stamp| stamp.parse().ok())?;
        words.next().is_none().then_some(Self { node, incarnation, boot, stamp, address })
    }
}

/// How the cluster began: what every replay of its first log begins with. Never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Founding {
    /// Groups of queues that each node brings.
    pub groups_per_node: u32,
    /// The first nodes, by number, and their addresses: without spaces.
    pub nodes: Vec<(u64, String)>,
}

impl Founding {
    /// `None`: it was never written down.
    pub fn load<D: Disk>(disk: &D) -> Result<Option<Self>, Error> {
        let Some(body) = read(disk, FOUNDING_FILE, FOUNDING_TITLE)? else { return Ok(None) };
        let founding = Self::decode(&body);
        founding.map(Some).ok_or_else(|| Error::damaged(FOUNDING_FILE, 0, "it has a wrong line"))
    }

    /// Writes it down.
    pub fn store<D: Disk>(&self, disk: &D) -> Result<(), Error> {
        let mut body = format!("groups {}\n", self.groups_per_node);
        for (node, address) in &self.nodes {
            body.push_str(&format!("{node} {address}\n"));
        }
        write(disk, FOUNDING_FILE, FOUNDING_TEMPORARY, FOUNDING_TITLE, &body)
    }

    fn decode(body: &str) -> Option<Self> {
        let mut lines = body.lines();
        let groups_per_node = lines.next()?.strip_prefix("groups ")?.parse().ok()?;
        let node = |line: &str| {
            let (node, address) = line.split_once(' ')?;
            Some((node.parse().ok()?, address.to_owned()))
        };
        Some(Self { groups_per_node, nodes: lines.map(node).collect::<Option<_>>()? })
    }
}

/// What stands between title and checksum; `None`: there is no such file.
fn read<D: Disk>(disk: &D, path: &str, title: &str) -> Result<Option<String>, Error> {
    let file = match disk.open(path, Access::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.at("open", path)?,
    };
    let bytes = file.bytes().at("read", path)?;
    let damaged = |what: &str| Error::damaged(path, 0, what);
    if bytes > NOTE_BYTES_MAX {
        return Err(damaged("it is too long"));
    }
    let mut text = vec![0; usize::try_from(bytes).map_err(|_| damaged("it is too long"))?];
    let count = file.read_at(0, &mut text).at("read", path)?;
    text.truncate(count);
    let text = String::from_utf8(text).map_err(|_| damaged("it is not text"))?;
    let end = text.rfind("checksum ").ok_or_else(|| damaged("it has no checksum"))?;
    let (body, checksum) = text.split_at(end);
    if checksum != format!("checksum {:08x}\n", crc32c::crc32c(body.as_bytes())) {
        return Err(damaged("its checksum is wrong"));
    }
    let body = body.strip_prefix(title).and_then(|body| body.strip_prefix('\n'));
    match body {
        Some(body) => Ok(Some(body.to_owned())),
        None => Err(Error::refused(
            path,
            "another version of this program wrote it: use that version or a newer one",
        )),
    }
}

fn encode(title: &str, body: &str) -> String {
    let body = format!("{title}\n{body}");
    format!("{body}checksum {:08x}\n", crc32c::crc32c(body.as_bytes()))
}

fn write<D: Disk>(
    disk: &D,
    path: &str,
    temporary: &str,
    title: &str,
    body: &str,
) -> Result<(), Error> {
    let text = encode(title, body);
    let file = disk.create(temporary).at("create", temporary)?;
    file.write_at(0, &[IoSlice::new(text.as_bytes())]).at("write", temporary)?;
    file.sync_data().at("sync", temporary)?;
    disk.rename(temporary, path).at("rename", temporary)?;
    disk.sync_dir("").at("sync", "the data directory")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::SimDisk;

    fn member(node: u64, incarnation: Option<u64>) -> Member {
        let address = format!("10.0.0.{node}:7000");
        Member { node, incarnation, boot: node, stamp: node, address }
    }

    #[test]
    fn starts_are_counted_from_one() {
        let disk = SimDisk::new(1);
        assert_eq!(Boot::next(&disk), Ok(1));
        assert_eq!(Boot::next(&disk), Ok(2));
        assert_eq!(Boot::next(&disk), Ok(3));
        assert_eq!(Boot::next_from(&disk, 100), Ok(100));
        assert_eq!(Boot::next_from(&disk, 90), Ok(101), "the clock went back");
    }

    #[test]
    fn a_start_is_counted_on_a_disk_without_a_byte_of_room() {
        let disk = SimDisk::new(1);
        assert_eq!(Boot::next_from(&disk, 100), Ok(100));
        disk.set_capacity(0);
        assert_eq!(Boot::next(&disk), Ok(101));
        disk.power_cut(1);
        assert_eq!(Boot::last(&disk), Ok(101));
        assert!(Boot::next_from(&disk, 1000).is_err_and(|error| error.is_full()), "it is longer");
        disk.set_capacity(u64::MAX);
        assert_eq!(Boot::next_from(&disk, 1000), Ok(1000));
    }

    #[test]
    fn members_read_back_as_they_were_written() {
        let disk = SimDisk::new(1);
        assert_eq!(Member::load(&disk), Ok(vec![]));
        for members in
            [vec![member(2, Some(0xfeed)), member(3, None)], vec![member(4, None)], vec![]]
        {
            Member::store(&disk, &members).unwrap();
            assert_eq!(Member::load(&disk), Ok(members));
        }
    }

    #[test]
    fn the_text_of_version_1_is_read() {
        let disk = SimDisk::new(1);
        let body = "2 000000000000feed 10.0.0.2:7000\n3 - 10.0.0.3:7000\n";
        write(&disk, MEMBERS_FILE, MEMBERS_TEMPORARY, MEMBERS_TITLE_1, body).unwrap();
        let members = [member(2, Some(0xfeed)), member(3, None)];
        let without_starts = members.map(|it| Member { boot: 0, stamp: 0, ..it });
        assert_eq!(Member::load(&disk), Ok(without_starts.to_vec()));
    }

    /// What is written of two members, without the checksum.
    fn text_of(members: &[Member]) -> String {
        let disk = SimDisk::new(1);
        Member::store(&disk, members).unwrap();
        assert_eq!(Member::load(&disk).as_deref(), Ok(members));
        let text = String::from_utf8(disk.contents(MEMBERS_FILE).unwrap()).unwrap();
        let (body, checksum) = text.split_at(text.find("checksum").unwrap());
        assert_eq!(checksum.len(), "checksum 00000000\n".len());
        body.to_owned()
    }

    #[test]
    fn the_text_of_version_2_does_not_change() {
        assert_eq!(
            text_of(&[member(2, Some(0xfeed)), member(3, None)]),
            "millrace members 2\n2 000000000000feed 10.0.0.2:7000 2\n3 - 10.0.0.3:7000 3\n",
            "an older program reads it, as long as nobody has told a stamp"
        );
    }

    #[test]
    fn the_text_of_version_3_does_not_change() {
        let stamped = Member { stamp: 70, ..member(2, Some(0xfeed)) };
        assert_eq!(
            text_of(&[stamped, member(3, None)]),
            "millrace members 3\n2 000000000000feed 10.0.0.2:7000 2 70\n3 - 10.0.0.3:7000 3 3\n"
        );
    }

    #[test]
    fn a_running_node_counts_on_however_full_the_disk_is() {
        let disk = SimDisk::new(1);
        assert_eq!(Boot::next_from(&disk, 100), Ok(100));
        disk.set_capacity(0);
        assert_eq!(Boot::renew(&disk, 170), Ok(()));
        disk.power_cut(1);
        assert_eq!(Boot::last(&disk), Ok(170));
        assert!(Boot::renew(&disk, 1000).is_err_and(|error| error.is_full()), "it is longer");
        assert_eq!(Boot::last(&disk), Ok(170));
        disk.set_capacity(u64::MAX);
        assert_eq!(Boot::renew(&disk, 1000), Ok(()));
        assert_eq!(Boot::next_from(&disk, 500), Ok(1001), "the next start counts from there");
    }

    #[test]
    fn a_number_that_grew_behind_the_back_of_a_running_node_is_refused_with_words() {
        let disk = SimDisk::new(1);
        assert_eq!(Boot::next_from(&disk, 100), Ok(100));
        let text = encode(BOOT_TITLE, "999\n");
        disk.lose_file(BOOT_FILE);
        disk.plant_file(BOOT_FILE, text.as_bytes());
        let error = Boot::renew(&disk, 170).unwrap_err();
        let Error::Refused { path, why } = &error else { panic!("{error}") };
        assert_eq!(path, BOOT_FILE);
        for part in ["has the number 999", "next number is 170", "start this node again"] {
            assert!(why.contains(part), "{why}");
        }
        assert_eq!(
            disk.contents(BOOT_FILE).unwrap(),
            text.as_bytes(),
            "it is left as it was found"
        );
        assert_eq!(Boot::next(&disk), Ok(1000), "the next start counts from there");
    }

    #[test]
    fn the_founding_reads_back_as_it_was_written() {
        let disk = SimDisk::new(1);
        assert_eq!(Founding::load(&disk), Ok(None));
        let nodes = vec![(1, String::new()), (2, "b:7000".to_owned())];
        let founding = Founding { groups_per_node: 8, nodes };
        founding.store(&disk).unwrap();
        assert_eq!(Founding::load(&disk), Ok(Some(founding)));
    }

    #[test]
    fn a_changed_digit_is_noticed() {
        let disk = SimDisk::new(1);
        Boot::next(&disk).unwrap();
        let file = disk.open(BOOT_FILE, Access::Write).unwrap();
        file.write_at(BOOT_TITLE.len() as u64 + 1, &[IoSlice::new(b"7")]).unwrap();
        assert!(matches!(Boot::next(&disk), Err(Error::Damaged { .. })));
    }

    #[test]
    fn another_version_is_refused() {
        let disk = SimDisk::new(1);
        write(&disk, BOOT_FILE, BOOT_TEMPORARY, "millrace starts 2", "1\n").unwrap();
        assert!(matches!(Boot::next(&disk), Err(Error::Refused { .. })));
    }
}
