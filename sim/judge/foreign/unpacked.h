#pragma once

#include <cstddef>
#include <string>

#include "scenarios/base/error.h"

namespace lockstep {

// A file's bytes; of a gzip file those that were packed. Bad input where it cannot be read, is
// damaged or cut off, or holds more than `most` bytes.
Expected<std::string> read_unpacked(const std::string& path, size_t most);

}  // namespace lockstep
