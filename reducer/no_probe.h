#pragma once

#include "reducer/probe.h"

namespace lockstep {

// For where nobody looks at what a reducer reports.
class NoProbe : public Probe {
 public:
  void parameter_ready(int64_t) noexcept override {}
  void bucket_ready(int64_t) noexcept override {}
  void arrival(uint32_t, Operation, int64_t, int64_t, uint8_t) noexcept override {}
  void end(uint32_t, int64_t) noexcept override {}
  void assigned(int64_t, int64_t, int64_t) noexcept override {}
};

}  // namespace lockstep
