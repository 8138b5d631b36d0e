//! Files of anchors: NumPy's `.npy` with little-endian f32 of shape `(P, 4)`, row by row, and nothing else.

use super::ModelError;

const MAGIC: &[u8] = b"\x93NUMPY";

/// Reads the rows.
///
/// # Errors
/// [`ModelError::Anchors`] that says what the file is instead.
pub(super) fn rows(bytes: &[u8]) -> Result<Vec<[f32; 4]>, ModelError> {
    let (header, numbers) = split(bytes).ok_or_else(|| wrong("it is no .npy file"))?;
    let header: String = header.split_whitespace().collect();
    let value = |key: &str| {
        let (_, after) = header.split_once(&format!("'{key}':"))?;
        // Only a shape has commas of its own.
        let end = match after.starts_with('(') {
            true => after.find(')')? + 1,
            false => after.find([',', '}'])?,
        };
        after.get(..end)
    };
    if value("descr") != Some("'<f4'") || value("fortran_order") != Some("False") {
        return Err(wrong(
            "its numbers are not little-endian f32 ('<f4') row by row",
        ));
    }
    let shape = value("shape").unwrap_or_default();
    let count = shape
        .strip_prefix('(')
        .and_then(|shape| shape.strip_suffix(",4)"))
        .and_then(|count| count.parse::<usize>().ok())
        .ok_or_else(|| wrong(&format!("its shape is {shape}, not (P, 4)")))?;
    let (numbers, rest) = numbers.as_chunks::<4>();
    let numbers: Vec<f32> = numbers
        .iter()
        .map(|&bytes| f32::from_le_bytes(bytes))
        .collect();
    let (rows, more) = numbers.as_chunks::<4>();
    if rows.len() != count || !more.is_empty() || !rest.is_empty() {
        return Err(wrong(&format!(
            "it says that it holds {count} rows, and is as long as {}",
            rows.len()
        )));
    }
    Ok(rows.to_vec())
}

/// The header's text, and what follows it.
fn split(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let [major, _minor, rest @ ..] = bytes.strip_prefix(MAGIC)? else {
        return None;
    };
    let (len, rest) = match major {
        1 => {
            let (len, rest) = rest.split_first_chunk::<2>()?;
            (usize::from(u16::from_le_bytes(*len)), rest)
        }
        2 | 3 => {
            let (len, rest) = rest.split_first_chunk::<4>()?;
            (usize::try_from(u32::from_le_bytes(*len)).ok()?, rest)
        }
        _ => return None,
    };
    let (header, numbers) = rest.split_at_checked(len)?;
    Some((std::str::from_utf8(header).ok()?, numbers))
}

fn wrong(what: &str) -> ModelError {
    ModelError::Anchors(what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file as NumPy writes it, with this header.
    fn file(header: &str, numbers: &[f32]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([1, 0]);
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        bytes
    }

    const HEADER: &str = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), }   \n";

    #[test]
    fn rows_are_read_in_their_order() {
        let numbers = [0.5, 0.25, 1.0, 2.0, -1.0, 0.0, 3.0, f32::MAX];
        let rows = rows(&file(HEADER, &numbers)).unwrap();
        assert_eq!(rows, [[0.5, 0.25, 1.0, 2.0], [-1.0, 0.0, 3.0, f32::MAX]]);
    }

    #[test]
    fn a_file_that_holds_something_else_says_what() {
        let numbers = [0.0; 8];
        for (from, to, reason) in [
            ("<f4", "<f8", "not little-endian f32"),
            ("<f4", ">f4", "not little-endian f32"),
            ("False", "True", "row by row"),
            ("(2, 4)", "(4, 2)", "its shape is (4,2), not (P, 4)"),
            ("(2, 4)", "(8,)", "its shape is (8,), not (P, 4)"),
            ("(2, 4)", "(1, 2, 4)", "its shape is (1,2,4), not (P, 4)"),
            (
                "(2, 4)",
                "(3, 4)",
                "says that it holds 3 rows, and is as long as 2",
            ),
            ("'shape'", "'form'", "its shape is , not (P, 4)"),
        ] {
            let error = rows(&file(&HEADER.replace(from, to), &numbers)).unwrap_err();
            assert!(error.to_string().contains(reason), "{error}");
        }
        let whole = file(HEADER, &numbers);
        for len in 0..whole.len() {
            assert!(rows(&whole[..len]).is_err(), "{len} bytes");
        }
        let longer = [&whole[..], &[0]].concat();
        assert!(rows(&longer).is_err());
        assert!(rows(b"PK\x03\x04").is_err());
    }
}
