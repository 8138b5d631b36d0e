//! The errors of this room.

/// Why a head cannot be bound to a network, or cannot read what the network gave.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum HeadError {
    /// The network has no output of the name that the card gives.
    #[error("the network has no output `{name}`; it has {found}")]
    MissingOutput {
        /// The name asked for.
        name: String,
        /// Names, types and shapes of the outputs that there are.
        found: String,
    },
    /// The card names no output and the network does not have exactly one.
    #[error("`[head]` must name its `output`, as the network has {found}")]
    UnnamedOutput {
        /// Names, types and shapes of the outputs that there are.
        found: String,
    },
    /// An output is of another type or shape than the card implies.
    #[error(
        "output `{name}` is {found}, but the card (input size, labels, `[head]`) means {expected}"
    )]
    Mismatch {
        /// The output's name.
        name: String,
        /// Type and shape that the card implies.
        expected: String,
        /// Type and shape that were found.
        found: String,
    },
    /// The input is not a whole number of a stride's cells.
    #[error("an input of {width}x{height} is no whole number of cells of stride {stride}")]
    Stride {
        /// Input width in pixels.
        width: u32,
        /// Input height in pixels.
        height: u32,
        /// The stride in pixels.
        stride: u32,
    },
    /// The outputs of one run differ in how many candidates they hold.
    #[error("outputs disagree: {0}")]
    Disagree(String),
    /// The anchors are none that boxes could be counted from.
    #[error("the anchors are wrong: {0}")]
    Anchors(String),
    /// The batch has no such row.
    #[error("picture {index} was asked of a batch of {rows}")]
    Row {
        /// The row asked for, from zero.
        index: usize,
        /// Rows that there are.
        rows: usize,
    },
}
