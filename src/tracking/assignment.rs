//! [`Matcher`]: the best of all ways to match rows with columns, where few of them go together.
//!
//! Shortest augmenting paths with potentials (the Hungarian method) on a sparse graph: a row is matched, or put
//! by, along the path that costs the others least. It only ever walks among rows and columns that hang together,
//! so many small crowds cost what each of them costs. Weights are integers, which makes it exact.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A row may be matched with this column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Edge {
    /// What the match is worth, above zero and below 2^40, so that no sum of them overflows.
    pub(super) weight: i64,
    pub(super) column: usize,
}

/// Matches rows with columns; holds nothing but room to work in.
#[derive(Debug, Default)]
pub(super) struct Matcher {
    column_of: Vec<Option<usize>>,
    row_potential: Vec<i64>,
    columns: Vec<Column>,
    /// Columns reached but not walked over yet, the nearest first; with outdated entries of larger distance.
    reached: BinaryHeap<Reverse<(i64, usize)>>,
    /// Columns whose `distance` says something about the path now looked for.
    touched: Vec<usize>,
}

#[derive(Debug, Clone, Copy)]
struct Column {
    row: Option<usize>,
    potential: i64,
    distance: i64,
    /// From which row it was reached.
    from: usize,
    walked: bool,
}

/// Where a path ends: at a column that nobody has, or with a row that does without one.
#[derive(Debug, Clone, Copy)]
enum End {
    Column(usize),
    Without(usize),
}

// === impl Matcher ===

impl Matcher {
    /// Gives each row a column of its own, or none, so that the sum of the weights is the largest there is.
    ///
    /// `edges_of(row)` are the row's columns, all below `columns`, each at most once. Equal sums are decided by the
    /// order of rows and columns alone.
    pub(super) fn solve<'a>(
        &mut self,
        rows: usize,
        columns: usize,
        edges_of: impl Fn(usize) -> &'a [Edge],
    ) -> &[Option<usize>] {
        self.column_of.clear();
        self.column_of.resize(rows, None);
        self.row_potential.clear();
        self.row_potential.resize(rows, 0);
        self.columns.clear();
        self.columns.resize(columns, Column::FREE);
        for row in 0..rows {
            self.place(row, &edges_of);
        }
        &self.column_of
    }

    /// Makes room for `start` along the shortest path.
    ///
    /// A match costs minus its weight and doing without costs nothing. A row's potential plus a column's is
    /// never above the cost of their edge, nor a row's alone above zero, and equal where they are matched.
    fn place<'a>(&mut self, start: usize, edges_of: &impl Fn(usize) -> &'a [Edge]) {
        let cheapest = edges_of(start).iter().map(|edge| {
            let column = &self.columns[edge.column];
            -edge.weight - column.potential
        });
        self.row_potential[start] = cheapest.min().unwrap_or(0).min(0);

        self.reached.clear();
        let (mut row, mut distance) = (start, 0);
        let mut without = (i64::MAX, start);
        let end = loop {
            let potential = self.row_potential[row];
            without = without.min((distance - potential, row));
            for edge in edges_of(row) {
                let column = &mut self.columns[edge.column];
                let here = distance - edge.weight - potential - column.potential;
                if !column.walked && here < column.distance {
                    if column.distance == i64::MAX {
                        self.touched.push(edge.column);
                    }
                    column.distance = here;
                    column.from = row;
                    self.reached.push(Reverse((here, edge.column)));
                }
            }
            match self.nearest() {
                Some((nearest, _)) if without.0 < nearest => break End::Without(without.1),
                None => break End::Without(without.1),
                Some((nearest, column)) => {
                    distance = nearest;
                    match self.columns[column].row {
                        None => break End::Column(column),
                        Some(matched) => row = matched,
                    }
                    self.columns[column].walked = true;
                }
            }
        };
        let length = match end {
            End::Column(column) => self.columns[column].distance,
            End::Without(_) => without.0,
        };
        self.raise_potentials(start, length);
        self.swap_along(start, end);
        for column in self.touched.drain(..) {
            let column = &mut self.columns[column];
            column.distance = i64::MAX;
            column.walked = false;
        }
    }

    fn nearest(&mut self) -> Option<(i64, usize)> {
        while let Some(Reverse((distance, column))) = self.reached.pop() {
            let known = &self.columns[column];
            if !known.walked && known.distance == distance {
                return Some((distance, column));
            }
        }
        None
    }

    fn raise_potentials(&mut self, start: usize, length: i64) {
        self.row_potential[start] += length;
        for &index in &self.touched {
            let column = &mut self.columns[index];
            let spare = length - column.distance;
            if let (true, Some(row)) = (column.walked, column.row) {
                column.potential -= spare;
                self.row_potential[row] += spare;
            }
        }
    }

    /// Every row on the path takes the column through which the next one was reached.
    fn swap_along(&mut self, start: usize, end: End) {
        let (mut row, mut taken) = match end {
            End::Column(column) => (self.columns[column].from, Some(column)),
            End::Without(row) => (row, None),
        };
        loop {
            let left = std::mem::replace(&mut self.column_of[row], taken);
            if let Some(column) = taken {
                self.columns[column].row = Some(row);
            }
            if row == start {
                return;
            }
            let column = left.expect("all rows on a path but its first are matched");
            taken = Some(column);
            row = self.columns[column].from;
        }
    }
}

// === impl Column ===

impl Column {
    const FREE: Self = Self {
        row: None,
        potential: 0,
        distance: i64::MAX,
        from: 0,
        walked: false,
    };
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn solve(columns: usize, graph: &[Vec<Edge>]) -> Vec<Option<usize>> {
        let mut matcher = Matcher::default();
        matcher
            .solve(graph.len(), columns, |row| &graph[row])
            .to_vec()
    }

    fn edges(list: &[(usize, i64)]) -> Vec<Edge> {
        let edge = |&(column, weight)| Edge { weight, column };
        list.iter().map(edge).collect()
    }

    /// The weight of a matching; panics where it is none.
    fn worth(graph: &[Vec<Edge>], matching: &[Option<usize>]) -> i64 {
        let mut taken = std::collections::HashSet::new();
        let weight = |(row, column): (usize, &Option<usize>)| {
            let column = (*column)?;
            assert!(taken.insert(column), "column {column} is taken twice");
            let edge = graph[row].iter().find(|edge| edge.column == column);
            Some(edge.expect("matched where there is an edge").weight)
        };
        matching.iter().enumerate().filter_map(weight).sum()
    }

    /// The best that any choice of columns gives, by trying them all.
    fn most(graph: &[Vec<Edge>], taken: u32) -> i64 {
        let Some((edges, rest)) = graph.split_first() else {
            return 0;
        };
        let with = |edge: &Edge| edge.weight + most(rest, taken | 1 << edge.column);
        let free = edges.iter().filter(|edge| taken & 1 << edge.column == 0);
        free.map(with).fold(most(rest, taken), i64::max)
    }

    #[test]
    fn the_sum_counts_not_the_best_pair() {
        let graph = [edges(&[(0, 9), (1, 8)]), edges(&[(0, 8), (1, 1)])];
        assert_eq!(solve(2, &graph), [Some(1), Some(0)]);
    }

    #[test]
    fn a_row_goes_without_where_that_is_worth_more() {
        let graph = [edges(&[(0, 1)]), edges(&[(0, 3)]), edges(&[(0, 2)])];
        assert_eq!(solve(1, &graph), [None, Some(0), None]);
        // Two small matches lose against a large one.
        let graph = [edges(&[(0, 3)]), edges(&[(0, 9), (1, 3)])];
        assert_eq!(solve(2, &graph), [None, Some(0)]);
    }

    #[test]
    fn nothing_is_matched_with_nothing() {
        assert_eq!(solve(0, &[]), []);
        assert_eq!(solve(3, &[vec![], vec![]]), [None, None]);
    }

    #[test]
    fn a_long_chain_moves_along() {
        // Each row would rather have its own column than its neighbour's, but not go without; the last row takes the
        // first column, and only the last column is free.
        let mut graph: Vec<_> = (0..100)
            .map(|n| edges(&[(n, 1000), (n + 1, 999)]))
            .collect();
        graph.push(edges(&[(0, 1000)]));
        let moved: Vec<_> = (1..=100).chain([0]).map(Some).collect();
        assert_eq!(solve(101, &graph), moved);
    }

    prop_compose! {
        /// Few different weights, so that ties occur.
        fn any_graph()(
            rows in prop::collection::vec(prop::collection::vec(prop::option::of(1i64..8), 7), 0..7)
        ) -> Vec<Vec<Edge>> {
            let edges = |row: Vec<Option<i64>>| {
                let edge = |(column, weight): (usize, Option<i64>)| Some(Edge { weight: weight?, column });
                row.into_iter().enumerate().filter_map(edge).collect()
            };
            rows.into_iter().map(edges).collect()
        }
    }

    proptest! {
        #[test]
        fn no_other_matching_is_worth_more(graph in any_graph()) {
            let matching = solve(7, &graph);
            prop_assert_eq!(worth(&graph, &matching), most(&graph, 0));
        }

        #[test]
        fn a_matcher_remembers_nothing(first in any_graph(), second in any_graph()) {
            let mut matcher = Matcher::default();
            matcher.solve(first.len(), 7, |row| &first[row]);
            let used = matcher.solve(second.len(), 7, |row| &second[row]).to_vec();
            prop_assert_eq!(used, solve(7, &second));
        }
    }
}
