//! Mutations of inputs: bytes, numbers, pieces of other inputs, and words that decoders look for.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// Longest input, in bytes.
const INPUT_MAX: usize = 64 * 1024;

/// Words with which decoders branch.
const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "\"",
    ":",
    ",",
    "null",
    "true",
    "1e999",
    "-1",
    "18446744073709551616",
    "\\u0000",
    "\\ud800",
    "\n",
    "\r\n\r\n",
    "==",
    "message",
    "data",
    "messageId",
    "message_id",
    "publishTime",
    "attributes",
    "subscription",
    "ce-id: ",
    "ce-type: ",
    "ce-source: ",
    "ce-specversion: 1.0\n",
    "content-type: application/cloudevents+json\n",
    "content-type: application/cloudevents-batch+json\n",
    "protoPayload",
    "methodName",
    "resourceName",
    "run",
    "tpu",
    "accelerator",
    "v5litepod-16",
    "limits",
    "2026-11-20T10:00:00Z",
    "state",
    "READY",
    "networkEndpoints",
    "error",
    "code",
    "Traceback (most recent call last):",
    "RESOURCE_EXHAUSTED",
    "Authorization: Bearer ",
    ".SIGNATURE_REMOVED_BY_GOOGLE",
    "eyJhbGciOiJub25lIn0",
    "\u{1F600}",
    "\u{0}",
];

/// One to eight mutations of an input, some with a piece of another.
pub fn mutate(input: &[u8], other: &[u8], random: &mut ChaCha8Rng) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..random.random_range(1..=8) {
        once(&mut bytes, other, random);
    }
    bytes.truncate(INPUT_MAX);
    bytes
}

fn once(bytes: &mut Vec<u8>, other: &[u8], random: &mut ChaCha8Rng) {
    let at = random.random_range(0..=bytes.len());
    match random.random_range(0..8) {
        0 if at < bytes.len() => bytes[at] ^= 1 << random.random_range(0..8),
        1 if at < bytes.len() => bytes[at] = random.random(),
        2 if at < bytes.len() => {
            let end = (at + random.random_range(1..64)).min(bytes.len());
            bytes.drain(at..end);
        }
        3 => insert(bytes, at, WORDS[random.random_range(0..WORDS.len())].as_bytes()),
        4 if !other.is_empty() => {
            let from = random.random_range(0..other.len());
            let to = (from + random.random_range(1..256)).min(other.len());
            insert(bytes, at, &other[from..to]);
        }
        5 if at < bytes.len() => {
            let end = (at + random.random_range(1..128)).min(bytes.len());
            let piece = bytes[at..end].to_vec();
            for _ in 0..random.random_range(1..4) {
                insert(bytes, at, &piece);
            }
        }
        6 => {
            // A number by another: lengths, codes, times.
            let Some(digit) = bytes.iter().skip(at).position(u8::is_ascii_digit) else { return };
            bytes[at + digit] = b'0' + random.random_range(0..10);
        }
        _ => bytes.truncate(at.max(1)),
    }
}

fn insert(bytes: &mut Vec<u8>, at: usize, piece: &[u8]) {
    if bytes.len() + piece.len() <= INPUT_MAX {
        bytes.splice(at..at, piece.iter().copied());
    }
}
