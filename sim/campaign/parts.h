#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "sim/campaign/numbers.h"

namespace lockstep {

// Pieces of random trainings, as a scenario file holds them.

// Keys model, data and loss that fit together. `samples`: of the data set. A training of a few
// hundred weights, of which each has a gradient in every step.
nlohmann::ordered_json drawn_model(Draw* draw, int64_t samples);

// Any of LibTorch's, with numbers under which a small training stays finite.
nlohmann::ordered_json drawn_optimizer(Draw* draw);

// Caps under which a small model has from one bucket to one for each tensor.
void draw_caps(Draw* draw, nlohmann::ordered_json* reducer);

// local most of the time, since runs in threads are fast; else gloo, shm or c10d.
nlohmann::ordered_json drawn_communicator(Draw* draw);

}  // namespace lockstep
