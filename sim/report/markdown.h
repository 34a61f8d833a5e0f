#pragma once

#include <string>

#include "sim/report/document.h"

namespace lockstep {

// `verify --markdown`: the table of scenarios, the kill matrix where there is one, and the answer.
std::string verify_markdown(const ResultDocument& document);

}  // namespace lockstep
