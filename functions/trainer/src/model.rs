//! The model and its optimizer: a network with one hidden layer, squared error, gradient descent with momentum.
//!
//! **Invariant:** every sum has a fixed order and only exactly rounded operations are used, so the same state and the
//! same rows give the same bits, whatever happened between two steps.

use crate::data::{Dataset, INPUTS, OUTPUTS, bytes_of, dot, stream, symmetric};
use sha2::{Digest as _, Sha256};

const HIDDEN: usize = 32;
/// First numbers of the parameters that belong to each part: hidden weights, hidden biases, output weights, biases.
const HIDDEN_BIAS: usize = HIDDEN * INPUTS;
const OUTPUT: usize = HIDDEN_BIAS + HIDDEN;
const OUTPUT_BIAS: usize = OUTPUT + OUTPUTS * HIDDEN;
/// Number of parameters.
pub(crate) const PARAMETERS: usize = OUTPUT_BIAS + OUTPUTS;

// Chosen so that the loss of the default run falls to about twice the noise of the data in its 400 steps.
const LEARNING_RATE: f64 = 0.05;
const MOMENTUM: f64 = 0.9;

/// Parameters and momentum: with the step and the position in the data, all that a checkpoint must hold.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Model {
    pub(crate) parameters: Vec<f64>,
    pub(crate) velocity: Vec<f64>,
}

impl Model {
    /// The initial model of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = stream(seed, "model", 0);
        let mut parameters = vec![0.0; PARAMETERS];
        for (index, parameter) in parameters.iter_mut().enumerate() {
            // Weights scaled by the width below them; biases start at zero.
            *parameter = match index {
                0..HIDDEN_BIAS => symmetric(&mut rng) * 0.4,
                OUTPUT..OUTPUT_BIAS => symmetric(&mut rng) * 0.3,
                _ => 0.0,
            };
        }
        Self { parameters, velocity: vec![0.0; PARAMETERS] }
    }

    /// The mean gradient over some rows, and behind it, as one more number, their mean loss.
    pub(crate) fn gradient(&self, data: &Dataset, rows: &[usize]) -> Vec<f64> {
        let p = &self.parameters;
        let mut sum = vec![0.0; PARAMETERS + 1];
        for &row in rows {
            let (input, target) = data.row(row);
            let mut middle = [0.0; HIDDEN];
            for (h, unit) in middle.iter_mut().enumerate() {
                *unit = (dot(&p[h * INPUTS..(h + 1) * INPUTS], input) + p[HIDDEN_BIAS + h]).max(0.0);
            }
            let mut back = [0.0; HIDDEN];
            for (o, wanted) in target.iter().enumerate() {
                let weights = OUTPUT + o * HIDDEN;
                let error = dot(&p[weights..weights + HIDDEN], &middle) + p[OUTPUT_BIAS + o] - wanted;
                sum[PARAMETERS] += error * error;
                for h in 0..HIDDEN {
                    sum[weights + h] += error * middle[h];
                    back[h] += error * p[weights + h];
                }
                sum[OUTPUT_BIAS + o] += error;
            }
            for h in 0..HIDDEN {
                if middle[h] > 0.0 {
                    for (i, value) in input.iter().enumerate() {
                        sum[h * INPUTS + i] += back[h] * value;
                    }
                    sum[HIDDEN_BIAS + h] += back[h];
                }
            }
        }
        let count = rows.len() as f64;
        for value in &mut sum {
            *value /= count;
        }
        sum
    }

    /// One step of the optimizer along a mean gradient; a last number beyond the parameters (the loss) is not used.
    pub(crate) fn apply(&mut self, gradient: &[f64]) {
        for ((parameter, velocity), slope) in self.parameters.iter_mut().zip(&mut self.velocity).zip(gradient) {
            *velocity = MOMENTUM * *velocity + slope;
            *parameter -= LEARNING_RATE * *velocity;
        }
    }

    /// `sha256:` and the digest of the parameters' bytes.
    pub(crate) fn digest(&self) -> String {
        format!("sha256:{}", hex::encode(Sha256::digest(bytes_of(&self.parameters))))
    }
}

/// The mean of all workers' contributions, summed in the order of their indices: floating-point sums depend on it.
pub(crate) fn mean(contributions: &[Vec<f64>]) -> Vec<f64> {
    let mut sum = vec![0.0; contributions.first().map_or(0, Vec::len)];
    for contribution in contributions {
        for (total, value) in sum.iter_mut().zip(contribution) {
            *total += value;
        }
    }
    let count = contributions.len() as f64;
    for value in &mut sum {
        *value /= count;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gradient_is_the_slope_of_the_loss() {
        let data = Dataset::generate(1);
        let rows: Vec<usize> = (0..8).collect();
        let model = Model::new(1);
        let gradient = model.gradient(&data, &rows);
        // The loss is the sum of squares; the gradient leaves the factor 2 to the learning rate.
        for index in [0, 77, HIDDEN_BIAS + 3, OUTPUT + 9, OUTPUT_BIAS, PARAMETERS - 1] {
            let loss_at = |by: f64| {
                let mut moved = model.clone();
                moved.parameters[index] += by;
                moved.gradient(&data, &rows)[PARAMETERS]
            };
            let slope = (loss_at(1e-5) - loss_at(-1e-5)) / 2e-5 / 2.0;
            assert!((slope - gradient[index]).abs() < 1e-6, "{index}: {slope} {}", gradient[index]);
        }
    }

    #[test]
    fn the_mean_is_taken_in_the_order_of_the_workers() {
        let parts = [vec![1e16, 1.0], vec![1.0, 2.0], vec![-1e16, 6.0]];
        let expected = (1e16_f64 + 1.0 - 1e16) / 3.0;
        assert_eq!(mean(&parts), vec![expected, 3.0]);
    }
}
