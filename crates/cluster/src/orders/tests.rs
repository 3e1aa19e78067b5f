use machine::{Applied, MembershipProblem};

use super::*;

const ONE: NodeId = NodeId(1);
const TWO: NodeId = NodeId(2);
const THREE: NodeId = NodeId(3);
const FOUR: NodeId = NodeId(4);

/// Nodes 1 to `count`, which have told of themselves, and who of them is down.
struct Stand {
    catalog: Catalog,
    down: Vec<NodeId>,
    /// Groups that have these voters.
    groups: Vec<(GroupId, Vec<NodeId>)>,
    /// Groups that the asked node keeps no replica of, and who votes there as their leader, node 2, says.
    elsewhere: Vec<(GroupId, Option<Vec<NodeId>>)>,
    speaks: Vec<(NodeId, Version)>,
    leader: Option<NodeId>,
    /// Groups with a replica here, of which no leader says who votes.
    unsaid: Vec<GroupId>,
    now_ms: u64,
}

impl Stand {
    fn of(count: u64) -> Self {
        let info = |node| NodeInfo { node, address: at(node), incarnation: 7 };
        let nodes: Vec<NodeInfo> = (1..=count).map(NodeId).map(info).collect();
        let catalog = Catalog::genesis(&nodes, 1);
        let (down, groups, elsewhere) = (Vec::new(), Vec::new(), Vec::new());
        let (speaks, leader) = (Vec::new(), Some(ONE));
        let unsaid = Vec::new();
        Self { catalog, down, groups, elsewhere, speaks, leader, unsaid, now_ms: 0 }
    }

    fn next(&self, task: &mut Task) -> Next {
        let speaks = |node| self.speaks.iter().find(|(it, _)| *it == node).map(|(_, it)| *it);
        let nodes = self.catalog.nodes().map(|info| info.node).filter(|node| *node != ONE);
        let peers: Vec<Peer> = nodes
            .map(|node| Peer { node, is_up: !self.down.contains(&node), speaks: speaks(node) })
            .collect();
        let report = |(group, voters): &(GroupId, Vec<NodeId>)| GroupReport {
            group: *group,
            leader: None,
            term: 1,
            committed: 1,
            applied: 1,
            persisted: 1,
            voters: voters.clone(),
            counted: (!self.unsaid.contains(group)).then(|| voters.clone()),
            outgoing: Vec::new(),
            learners: Vec::new(),
            matched: Vec::new(),
            digest: 0,
            compared: crate::digests::Compared::default(),
            leader_changes: Vec::new(),
        };
        let groups: Vec<GroupReport> = self.groups.iter().map(report).collect();
        let elsewhere = self.elsewhere.iter().map(|(group, counted)| Elsewhere {
            group: *group,
            leader: Some(TWO),
            voters: Vec::new(),
            counted: counted.clone(),
        });
        let elsewhere: Vec<Elsewhere> = elsewhere.collect();
        task.next(&View {
            now_ms: self.now_ms,
            node: ONE,
            address: "one:1",
            speaks: Version::NEWEST,
            catalog: &self.catalog,
            peers: &peers,
            groups: &groups,
            elsewhere: &elsewhere,
            catalog_leader: self.leader,
        })
    }

    fn apply(&mut self, command: &CatalogCommand) {
        let at = Applied { index: 1, time_ms: 0 };
        let reply = self.catalog.apply(at, command.clone(), &mut Vec::new());
        assert_eq!(refusal(&reply), None, "{command:?}");
    }

    /// Makes what the order wants changed, and gives it back.
    fn change(&mut self, task: &mut Task) -> Vec<CatalogCommand> {
        let Next::Change(commands) = self.next(task) else { panic!("nothing is to be changed") };
        for command in &commands {
            self.apply(command);
        }
        commands
    }

    fn refused(&self, order: Order) -> String {
        match self.next(&mut Task::new(order)) {
            Next::Refused(why) => why,
            other => panic!("{other:?}"),
        }
    }
}

fn at(node: NodeId) -> String {
    format!("node-{}:5673", node.0)
}

fn is_done(next: &Next, words: &str) -> bool {
    matches!(next, Next::Done(said) if said.contains(words))
}

#[test]
fn a_node_that_goes_gives_its_groups_away_before_it_is_no_member_any_more() {
    let mut stand = Stand::of(4);
    let mut task = Task::new(Order::Remove { node: FOUR });
    let moves = stand.change(&mut task);
    let is_move = |command: &CatalogCommand| matches!(command, CatalogCommand::SetVoters { .. });
    assert!(moves.iter().all(is_move), "{moves:?}");
    stand.groups = vec![(GroupId(1), vec![ONE, TWO, FOUR])];
    assert_eq!(stand.next(&mut task), Next::Wait, "a group still counts on it");
    stand.groups[0].1 = vec![ONE, TWO, THREE];
    assert_eq!(stand.change(&mut task), [CatalogCommand::RemoveNode { node: FOUR }]);
    assert!(is_done(&stand.next(&mut task), "Node 4 is no member any more"));
    let words = task.take_words();
    let expected = ["gives its groups", "1 group(s) still count on node 4", "is taken out"];
    assert!(words.iter().zip(expected).all(|(said, words)| said.contains(words)), "{words:?}");
    assert_eq!(words.len(), 3);
}

#[test]
fn a_replica_that_is_built_anew_does_not_say_that_nobody_counts_on_a_node() {
    let mut stand = Stand::of(4);
    let mut task = Task::new(Order::Remove { node: FOUR });
    stand.change(&mut task);
    assert_eq!(stand.change(&mut task), [CatalogCommand::RemoveNode { node: FOUR }]);
    // It knows of the voters at the beginning alone. Node 4 may vote by now, and no leader says so.
    stand.groups = vec![(GroupId(1), vec![ONE, TWO, THREE])];
    stand.unsaid = vec![GroupId(1)];
    assert_eq!(stand.next(&mut task), Next::Wait);
    stand.unsaid.clear();
    assert!(is_done(&stand.next(&mut task), "Node 4 is no member any more"));
}

#[test]
fn a_node_that_is_lost_goes_as_it_is_and_another_takes_its_place() {
    let mut stand = Stand::of(3);
    stand.down = vec![THREE];
    let mut task = Task::new(Order::Replace { node: THREE, by: FOUR });
    assert_eq!(stand.change(&mut task), [CatalogCommand::RemoveNode { node: THREE }]);
    let address = at(THREE);
    let add = CatalogCommand::AddNode { node: FOUR, address, incarnation: 0 };
    assert_eq!(stand.change(&mut task), [add]);
    assert!(is_done(&stand.next(&mut task), "--node-id 4 --peer-listen node-3:5673 --join node-1"));
    assert!(stand.refused(Order::Replace { node: TWO, by: THREE }).contains("another number"));
}

#[test]
fn no_node_is_taken_out_where_the_others_would_be_no_majority() {
    let mut stand = Stand::of(4);
    let mut task = Task::new(Order::Remove { node: FOUR });
    stand.change(&mut task);
    stand.down = vec![TWO, THREE];
    let Next::Refused(why) = stand.next(&mut task) else { panic!("it goes on") };
    assert!(why.contains("only 1 of 3 nodes"), "{why}");
    stand.down = vec![TWO];
    assert_eq!(stand.catalog.nodes().count(), 4);
    assert!(stand.refused(Order::Remove { node: ONE }).contains("ask another node"));
    assert!(
        stand.refused(Order::Remove { node: NodeId(9) }).contains("the members are 1, 2, 3, 4")
    );
}

#[test]
fn an_order_that_was_cut_short_can_be_given_again() {
    let mut stand = Stand::of(3);
    stand.down = vec![THREE];
    stand.change(&mut Task::new(Order::Remove { node: THREE }));
    stand.groups = vec![(GroupId(1), vec![ONE, THREE])];

    let mut again = Task::new(Order::Remove { node: THREE });
    assert_eq!(stand.next(&mut again), Next::Wait, "a group still counts on it");
    let mut replace = Task::new(Order::Replace { node: THREE, by: FOUR });
    assert_eq!(stand.next(&mut replace), Next::Wait);

    stand.groups[0].1 = vec![ONE, TWO];
    assert!(is_done(&stand.next(&mut again), "Node 3 is no member any more"));
    let added = stand.change(&mut replace);
    assert!(matches!(added[..], [CatalogCommand::AddNode { node: FOUR, .. }]), "{added:?}");
}

#[test]
fn a_node_is_not_let_go_while_a_group_counts_on_it_that_the_asked_node_does_not_keep() {
    let mut stand = Stand::of(4);
    stand.down = vec![FOUR];
    let mut task = Task::new(Order::Remove { node: FOUR });
    stand.change(&mut task);
    // Group 9 is wanted nowhere near node 4.
    stand.elsewhere = vec![(GroupId(9), None)];
    assert_eq!(stand.next(&mut task), Next::Wait, "its leader has not said who votes");
    stand.elsewhere[0].1 = Some(vec![TWO, THREE, FOUR]);
    assert_eq!(stand.next(&mut task), Next::Wait, "its leader counts on node 4");
    stand.elsewhere[0].1 = Some(vec![TWO, THREE]);
    assert!(is_done(&stand.next(&mut task), "votes in no group"));

    // A leader of before says nothing, ever.
    let mut again = Task::new(Order::Remove { node: FOUR });
    stand.elsewhere[0].1 = None;
    assert_eq!(stand.next(&mut again), Next::Wait);
    stand.speaks = vec![(TWO, Version(5))];
    assert!(is_done(&stand.next(&mut again), "leave it running until it ends by itself"));
}

#[test]
fn an_order_that_waits_too_long_says_what_it_waits_for() {
    let mut stand = Stand::of(3);
    stand.down = vec![THREE];
    let mut task = Task::new(Order::Remove { node: THREE });
    stand.change(&mut task);
    stand.groups = vec![(GroupId(1), vec![ONE, TWO, THREE])];
    assert_eq!(stand.next(&mut task), Next::Wait);
    stand.now_ms = LEAVE_MS - 1;
    assert_eq!(stand.next(&mut task), Next::Wait);
    stand.now_ms = LEAVE_MS;
    let Next::Refused(why) = stand.next(&mut task) else { panic!("it waits for ever") };
    assert!(why.contains("is no member any more, but 1 group(s) still count on it"), "{why}");
}

#[test]
fn one_node_at_a_time_may_join_and_only_from_a_node_that_others_find() {
    let mut stand = Stand::of(3);
    let mut task = Task::new(Order::Add { node: FOUR, address: at(FOUR) });
    stand.change(&mut task);
    assert!(is_done(&stand.next(&mut task), "Node 4 at node-4:5673 may join"));
    stand.down = vec![FOUR];
    let why = stand.refused(Order::Add { node: NodeId(5), address: at(NodeId(5)) });
    assert!(why.contains("node 4 was added and has not come yet"), "{why}");
    let joiner = |incarnation| NodeInfo { node: FOUR, address: at(FOUR), incarnation };
    let command = admit(&stand.catalog, joiner(8)).unwrap();
    stand.apply(&command);
    assert!(admit(&stand.catalog, joiner(9)).unwrap_err().contains("not its data directory"));
    let stranger = NodeInfo { node: NodeId(9), ..joiner(1) };
    assert!(admit(&stand.catalog, stranger).unwrap_err().contains("nobody has added it"));
}

#[test]
fn a_version_is_raised_once_all_read_it_or_by_force_where_no_old_node_leads_the_catalog() {
    let mut stand = Stand::of(3);
    stand.speaks = vec![(TWO, Version::NEWEST)];
    assert!(stand.refused(Order::Raise { force: false }).contains("node(s) 3"));
    stand.leader = Some(THREE);
    assert!(stand.refused(Order::Raise { force: true }).contains("node 3 leads the catalog"));
    stand.leader = Some(TWO);
    let mut task = Task::new(Order::Raise { force: true });
    let raise = CatalogCommand::RaiseVersion { to: Version::NEWEST };
    assert_eq!(stand.change(&mut task), [raise]);
    assert!(is_done(&stand.next(&mut task), "stop until they are upgraded"));
    let mut again = Task::new(Order::Raise { force: false });
    assert!(is_done(&stand.next(&mut again), "knows no newer one"));
}

#[test]
fn five_replicas_are_for_all_groups_or_for_some_of_each_node() {
    let mut stand = Stand::of(5);
    let order = |count, groups| Order::Replicas { count, groups };
    let voters = |stand: &Stand| -> Vec<usize> {
        (1..=5).map(|group| stand.catalog.voters(GroupId(group)).len()).collect()
    };
    // Before the version that knows wide groups all are the same.
    let why = stand.refused(order(5, Some(1)));
    assert!(why.contains("version 4") && why.contains("leave --groups out"), "{why}");
    let mut all = Task::new(order(5, None));
    let changes = stand.change(&mut all);
    let is_move = |command: &CatalogCommand| matches!(command, CatalogCommand::SetVoters { .. });
    assert!(changes.iter().all(is_move), "{changes:?}");
    assert!(is_done(&stand.next(&mut all), "5 group(s) get 5 replicas"));
    assert_eq!(voters(&stand), [5; 5]);

    stand.apply(&CatalogCommand::RaiseVersion { to: Version(6) });
    for (count, per_node, most) in [(3, 0, 3), (5, 1, 5)] {
        let mut task = Task::new(order(count, None));
        let set = CatalogCommand::SetWideGroups { per_node };
        assert_eq!(stand.change(&mut task), [set]);
        assert_eq!(stand.change(&mut task).len(), 5);
        assert!(is_done(&stand.next(&mut task), &format!("5 group(s) get {count} replicas")));
        assert_eq!(voters(&stand), [most; 5]);
    }
    assert!(stand.refused(order(5, Some(2))).contains("from 1 to 1"));
    assert!(stand.refused(order(5, Some(0))).contains("from 1 to 1"));
    assert!(stand.refused(order(3, Some(1))).contains("replicas 5 --groups 1"));
    stand.apply(&CatalogCommand::RemoveNode { node: FOUR });
    assert!(stand.refused(order(5, Some(1))).contains("there are 4 nodes"));
}

#[test]
fn some_groups_of_each_node_get_five_replicas() {
    let mut stand = Stand::of(5);
    let nodes: Vec<NodeInfo> = stand.catalog.nodes().cloned().collect();
    stand.catalog = Catalog::genesis(&nodes, 2);
    stand.apply(&CatalogCommand::RaiseVersion { to: Version(6) });
    let mut task = Task::new(Order::Replicas { count: 5, groups: Some(1) });
    assert_eq!(stand.change(&mut task), [CatalogCommand::SetWideGroups { per_node: 1 }]);
    assert_eq!(stand.change(&mut task).len(), 5);
    let words = "1 group(s) of each node get 5 replicas, the others 3. 5 group(s) change";
    assert!(is_done(&stand.next(&mut task), words));
    let wide = (1..=10).filter(|group| stand.catalog.voters(GroupId(*group)).len() == 5);
    assert_eq!(wide.collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert!(stand.catalog.voters(GroupId(6)).len() == 3);
}

#[test]
fn a_refusal_of_the_catalog_is_said_in_words() {
    let problem = MembershipProblem::LastNode { node: ONE };
    let why = refusal(&CatalogReply::Refused(machine::Refusal::Membership(problem))).unwrap();
    assert!(!why.is_empty());
    assert_eq!(refusal(&CatalogReply::Done), None);
}
