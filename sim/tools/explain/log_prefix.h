#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace lockstep {

// Who says whose a line is.
enum class LineOwner {
  nobody,
  node,     // torchrun's [default3]: counts one node's processes; vLLM's, one engine's
  label,    // "3: ", srun's, or a list's number
  job,      // mpirun's [1,3]<stderr>:, sglang's [2025-01-29 08:52:44 TP3]
  number,   // "[3] " of mpiexec -prepend-rank, or a step's
  process,  // PyTorch's [rank3]:
};

// Who wrote a line, as launchers and PyTorch mark it. What containers, Ray and colours put before
// it is skipped.
struct LogPrefix {
  int64_t rank = -1;
  LineOwner owner = LineOwner::nobody;
  int64_t node_rank = -1;  // by the launcher, where the process says its rank, too
  bool role_rank = false;  // that launcher's words were "[rank3]:", too: a role of that name
  bool uncaught = false;   // [rank3]: of a Python line, by PyTorch's hook for uncaught exceptions
  bool of_record = false;  // sglang's: lines of the same record have none
  std::string_view rest;   // the line without it

  bool local() const { return owner == LineOwner::node; }
};

// Of a log the hosts whose names pdsh or clush put before its lines.
using LogHosts = std::set<std::string, std::less<>>;

// hosts: those seen so far, to which that of `line` is added; without, a host is known by what
// stands behind it alone.
LogPrefix log_prefix(std::string_view line, LogHosts* hosts = nullptr);

// Without colors and other escapes of terminals, wherever they stand: Python 3.13 colors tracebacks
// within.
std::string without_escapes(std::string_view line);

// What follows the time that containers put before a line.
std::string_view after_time(std::string_view line);

// "2024-12-04T05:26:25.055Z" or "2024-07-24 08:45:13.616", on a line of its own before each, as
// exports of CloudWatch and of consoles have it.
bool is_time_alone(std::string_view line);

// "[rank3]:" before `end`, the last one: what a progress bar left may stand before it.
std::optional<int64_t> rank_before(std::string_view line, size_t end);

}  // namespace lockstep
