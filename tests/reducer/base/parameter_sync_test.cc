#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "reducer/base/parameter_sync.h"
#include "tests/reducer/test_group.h"

namespace lockstep {
namespace {

at::Tensor filled(at::IntArrayRef shape, double value, at::ScalarType type = at::kFloat) {
  return at::full(shape, value, type);
}

TEST(ModelAveraging, GivesAllRanksTheMeanOfWhatIsTrained) {
  run_ranks({"gloo", "ring"}, 3, [](int64_t rank, Communicator& communicator) {
    const auto value = 3 * static_cast<double>(rank);
    const NamedTensors parameters = {
        {"weight", filled({4, 5}, value).requires_grad_(true)},
        {"frozen", filled({2}, value)},
        {"wide", filled({3}, 2 * value, at::kDouble).requires_grad_(true)},
        {"bias", filled({7}, value + 3).requires_grad_(true)}};
    const NamedTensors given = {parameters[0],
                                parameters[1],
                                parameters[2],
                                parameters[3],
                                {"again", parameters[0].tensor}};
    average_parameters(given, communicator, soon());
    EXPECT_TRUE(parameters[0].tensor.equal(filled({4, 5}, 3)));
    EXPECT_TRUE(parameters[1].tensor.equal(filled({2}, value)));
    EXPECT_TRUE(parameters[2].tensor.equal(filled({3}, 6, at::kDouble)));
    EXPECT_TRUE(parameters[3].tensor.equal(filled({7}, 6)));
  });
}

}  // namespace

}  // namespace lockstep
