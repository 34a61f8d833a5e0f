#pragma once

#include <cstddef>
#include <string_view>

namespace lockstep {

// How a library begins the lines of its log.

// The level ('I', 'W', 'E', 'F') of what glog, absl and PyTorch's own logging write, or 0:
// "E1128 12:00:00.123456   456 ProcessGroupNCCL.cpp:616] ", "I0000 00:00:1731401234.5   456 x.cc:1]
// " (absl before it is initialized), "[E1128 12:00:00.123456789 x.cpp:1] ", "[E x.cpp:1] ".
char native_level(std::string_view line);

// The length of "ERROR 07-23 19:34:51 [multiproc_executor.py:487] ", as vLLM begins each line of a
// record, or 0.
size_t python_record_head(std::string_view line);

}  // namespace lockstep
