#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>

#include "sim/report/text_style.h"
#include "sim/tools/compare/certificate.h"

namespace lockstep {

// What `lockstep compare` says of two gradient logs: text and --json.

// Ends in a newline. a and b: as the user gave them.
std::string certificate_text(const Certificate& certificate, const std::string& a,
                             const std::string& b, bool quiet, const Style& style);
// The whole document.
nlohmann::ordered_json as_json(const Certificate& certificate, const std::string& a,
                               const std::string& b);

}  // namespace lockstep
