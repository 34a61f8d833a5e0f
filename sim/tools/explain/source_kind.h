#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

enum class SourceKind { dump, error_file, log, trace, chakra, other };

inline constexpr int64_t kKindBytes = 4096;  // of a file, by which its kind is told

// Of its first bytes, and of names that only dumps have.
SourceKind kind_of(const std::string& path, std::string_view head);

}  // namespace lockstep
