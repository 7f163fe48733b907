//! Order, cool-downs and limits of the candidates.
