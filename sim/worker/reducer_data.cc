#include "sim/worker/reducer_data.h"

#include <nlohmann/json.hpp>

namespace lockstep {

std::string reducer_data_text(const ReducerData& data) {
  if (data.bucket_bytes.empty()) return "";
  const auto ms = [](int64_t ns) { return static_cast<double>(ns) * 1e-6; };
  const nlohmann::ordered_json json = {{"bucket_bytes", data.bucket_bytes},
                                       {"rebuilt_bucket_bytes", data.rebuilt_bucket_bytes},
                                       {"parameters", data.parameters},
                                       {"parameter_bytes", data.parameter_bytes},
                                       {"unused_parameter_bytes", data.unused_parameter_bytes},
                                       {"forward_ms", ms(data.forward_ns)},
                                       {"backward_ms", ms(data.backward_ns)},
                                       {"comm_ms", ms(data.comm_ns)},
                                       {"overlap_ms", ms(data.overlap_ns)}};
  return json.dump();
}

}  // namespace lockstep
