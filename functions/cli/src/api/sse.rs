//! Server-sent events, as the HTML standard writes them: bytes in, events out.

/// One event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Event {
    /// `event:`, empty for the usual kind.
    pub(crate) kind: String,
    /// Last `id:` seen on the stream up to this event.
    pub(crate) id: String,
    /// The `data:` lines, joined by line feeds.
    pub(crate) data: String,
}

/// Cuts a stream of bytes into events; keeps what is not complete yet.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    rest: Vec<u8>,
    /// Up to here `rest` holds no end of a line.
    searched: usize,
    kind: String,
    id: String,
    data: String,
    has_data: bool,
}

impl Parser {
    /// Takes bytes, and gives the events they complete.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<Event> {
        self.rest.extend_from_slice(bytes);
        let mut events = Vec::new();
        let mut begin = 0;
        while let Some(offset) = self.rest[self.searched..].iter().position(|byte| *byte == b'\n') {
            let end = self.searched + offset;
            let line = String::from_utf8_lossy(&self.rest[begin..end]).into_owned();
            events.extend(self.line(line.strip_suffix('\r').unwrap_or(&line)));
            begin = end + 1;
            self.searched = begin;
        }
        self.rest.drain(..begin);
        self.searched = self.rest.len();
        events
    }

    fn line(&mut self, line: &str) -> Option<Event> {
        if line.is_empty() {
            let kind = std::mem::take(&mut self.kind);
            let mut data = std::mem::take(&mut self.data);
            data.pop();
            let is_event = std::mem::take(&mut self.has_data);
            return is_event.then(|| Event { kind, id: self.id.clone(), data });
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.kind),
            "id" if !value.contains('\0') => value.clone_into(&mut self.id),
            "data" => {
                self.data.push_str(value);
                self.data.push('\n');
                self.has_data = true;
            }
            // Comments (an empty name), `retry`, and what is not known.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str =
        ": hello\n\nid: 7\ndata: one\ndata:two\n\nevent: end\r\ndata: {}\r\n\r\nid: 8\n\ndata\n\ndata: cut";

    fn expected() -> Vec<Event> {
        let event = |kind: &str, id: &str, data: &str| Event { kind: kind.into(), id: id.into(), data: data.into() };
        vec![event("", "7", "one\ntwo"), event("end", "7", "{}"), event("", "8", "")]
    }

    #[test]
    fn events_are_the_same_however_the_stream_is_cut() {
        for size in [1, 2, 3, 7, STREAM.len()] {
            let mut parser = Parser::default();
            let events: Vec<Event> = STREAM.as_bytes().chunks(size).flat_map(|part| parser.push(part)).collect();
            assert_eq!(events, expected(), "chunks of {size}");
        }
    }
}
