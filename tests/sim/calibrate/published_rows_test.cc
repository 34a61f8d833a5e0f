// Tables that the rule of row_fit.h was not made with: one row is fitted to, the others follow.
#include <gmock/gmock.h>

#include <cmath>
#include <string>
#include <vector>

#include "scenarios/parse/suite.h"
#include "sim/calibrate/row_fit.h"
#include "sim/plan/plan.h"

namespace lockstep {
namespace {

const std::string kFolder = LOCKSTEP_SOURCE_DIR "/golden/data/published/";

// By what is in the table: where the machine is no word, a file beside it.
struct Case {
  const char *table, *machine;
  std::vector<std::string> sets;
  double mean = 0;  // bound of the mean error
};

std::vector<std::string> tokens(const std::string& model, int64_t vocabulary, int64_t length) {
  return {"/model=" + model, R"(/data={"kind": "tokens", "samples": 64, "vocabulary": )" +
                                 std::to_string(vocabulary) + R"(, "length": )" +
                                 std::to_string(length) + "}"};
}

std::vector<std::string> gpt(int64_t layers, int64_t width, int64_t vocabulary, int64_t length) {
  auto sets = tokens(R"({"kind": "gpt", "heads": 8, "vocabulary": )" + std::to_string(vocabulary) +
                         R"(, "context": )" + std::to_string(length) + R"(, "layers": )" +
                         std::to_string(layers) + R"(, "width": )" + std::to_string(width) + "}",
                     vocabulary, length);
  sets.emplace_back(
      R"(/reducer={"kind": "fsdp", "gather_dtype": "bfloat16", "reduce_dtype": "float32"})");
  return sets;
}

std::vector<std::string> parameters(const std::string& name) {
  return {R"(/model={"kind": "parameters", "file": ")" + kFolder + name + R"(_parameters.json"})",
          R"(/data={"kind": "randn", "samples": 4096, "features": 1, "targets": 1})",
          R"(/loss={"kind": "mse"})"};
}

std::vector<Case> cases() {
  const std::string bert = R"({"kind": "bert", "vocabulary": 30528, "width": 1024, "layers": 24})";
  const std::string bart = R"({"kind": "bert", "vocabulary": 50265, "width": 1024, "layers": 28})";
  return {
      {"llama_8b_dgx_h100", "dgx_h100", gpt(32, 4096, 128256, 8192), 0.01},
      {"mpt_760m_dgx_h100", "dgx_h100", gpt(24, 1536, 50368, 2048), 0.01},
      {"mpt_1b_dgx_h100", "dgx_h100", gpt(24, 2048, 50368, 2048), 0.025},
      {"mpt_7b_dgx_a100", "dgx_a100", gpt(32, 4096, 50368, 2048), 0.02},
      {"bert_large_tf32_128_dgx_a100", "dgx_a100", tokens(bert, 30528, 128), 0.015},
      {"bert_large_amp_128_dgx_a100", "dgx_a100", tokens(bert, 30528, 128), 0.015},
      {"bert_large_amp_512_dgx_a100", "dgx_a100", tokens(bert, 30528, 512), 0.02},
      {"resnet50_tf32_dgx_a100", "dgx_a100", {R"(/model={"kind": "resnet50"})"}, 0.02},
      {"resnet50_fp32_dgx_v100", "dgx_v100", {R"(/model={"kind": "resnet50"})"}, 0.02},
      {"transformer_xl_tf32_dgx_a100", "dgx_a100", parameters("transformer_xl"), 0.02},
      {"transformer_xl_amp_dgx_a100", "dgx_a100", parameters("transformer_xl"), 0.021},
      {"transformer_xl_fp32_v100", "machine_v100_mesh", parameters("transformer_xl"), 0.04},
      {"bart_tf32_128_dgx_a100", "dgx_a100", tokens(bart, 50265, 128), 0.015},
      {"resnet152_p2", "machine_p2", {R"(/model={"kind": "resnet152"})"}, 0.01},
      {"alexnet_p2", "machine_p2", {R"(/model={"kind": "alexnet"})"}, 0.08},
      {"resnet50_p100", "machine_p100", {R"(/model={"kind": "resnet50"})"}, 0.02},
      {"resnet152_p100", "machine_p100", {R"(/model={"kind": "resnet152"})"}, 0.02},
      {"resnet50_k80", "machine_k80", {R"(/model={"kind": "resnet50"})"}, 0.02},
      {"alexnet_k80", "machine_k80", {R"(/model={"kind": "alexnet"})"}, 0.2},
      {"resnet50_mxnet_fp32_dgx2", "machine_dgx2", {R"(/model={"kind": "resnet50"})"}, 0.02},
      {"bert_base_mxnet_fp32_64_v100", "machine_v100_edr",
       tokens(R"({"kind": "bert", "vocabulary": 30522, "width": 768, "layers": 12})", 30522, 128),
       0.03},
      {"ssd_tf32_64_dgx_a100", "dgx_a100", parameters("ssd"), 0.015},
      {"jasper_fp32_32_v100", "dgx_v100", parameters("jasper"), 0.015},
      {"paddle_bert_amp_128_dgx_a100", "dgx_a100", tokens(bert, 30528, 128), 0.055},
      {"mpt_30b_large_h100", "dgx_h100", gpt(48, 7168, 50368, 2048), 0.028},
      {"resnet101_pcie_roce", "machine_pcie_roce", {R"(/model={"kind": "resnet101"})"}, 0.02},
      {"vgg16_amp_rtx3090",
       "machine_rtx3090",
       {R"(/model={"kind": "vgg16"})", R"(/comm_hook={"kind": "fp16"})"},
       0.07}};
}

MachineModel machine_for(const std::string& name) {
  if (const auto preset = machine_preset(name)) return *preset;
  return read_machine_model(kFolder + name + ".json").value();
}

// A test for each table: sanitized, all of them take longer than one test may.
class PublishedRows : public testing::TestWithParam<Case> {};

TEST_P(PublishedRows, FollowFromOne) {
  const Case& one = GetParam();
  const auto file =
      load_scenario_file(LOCKSTEP_SOURCE_DIR "/scenarios/stragglers/emulated_resnet50.json",
                         {.sets = one.sets, .seed = {}});
  ASSERT_TRUE(file) << to_text(file.errors().front());
  const auto plans = make_plans(file.value(), {.only = true});
  ASSERT_TRUE(plans) << to_text(plans.errors().front());
  const auto table = read_published_table(kFolder + one.table + ".json");
  ASSERT_TRUE(table) << to_text(table.errors().front());
  const auto fit = fit_row(plans.value().front(), machine_for(one.machine), table.value());
  ASSERT_TRUE(fit) << to_text(fit.errors().front());
  double sum = 0;
  for (const PredictedRow& row : fit.value().rows) sum += std::fabs(row.ms / row.row.ms - 1);
  EXPECT_LT(sum / static_cast<double>(fit.value().rows.size() - 1), one.mean);
}

INSTANTIATE_TEST_SUITE_P(Tables, PublishedRows, testing::ValuesIn(cases()),
                         [](const auto& tested) { return tested.param.table; });

}  // namespace
}  // namespace lockstep
