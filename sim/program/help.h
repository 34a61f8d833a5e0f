#pragma once

#include <CLI/CLI.hpp>

#include <memory>

namespace lockstep {

// CLI11's help with one blank line between its parts and no program name twice.
std::shared_ptr<CLI::Formatter> own_help();

}  // namespace lockstep
