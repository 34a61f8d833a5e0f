#pragma once

#include <string>

#include "reducer/reducer.h"

namespace lockstep {

// As it stands in a result (runs[].reducer_data), JSON; empty where the reducer has nothing to say.
std::string reducer_data_text(const ReducerData& data);

}  // namespace lockstep
