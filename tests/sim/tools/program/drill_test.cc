#include "sim/tools/program/drill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "tests/scenarios/parse/temporary_file.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using Matrix = std::vector<std::vector<double>>;

RowPrints prints_of(const Matrix& rows) {
  std::vector<double> found;
  for (const std::vector<double>& row : rows) {
    std::mt19937 bits(static_cast<unsigned>(row.size()));
    std::normal_distribution<double> normal;
    double a = 0, b = 0;
    for (const double value : row) a += value * normal(bits), b += value * normal(bits);
    found.insert(found.end(), {a, b});
  }
  return found;
}

Matrix transposed(const Matrix& rows) {
  Matrix made(rows[0].size());
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) made[i].push_back(row[i]);
  return made;
}

DrillTensor tensor_of(const Matrix& rows) {
  DrillTensor made;
  made.shape = {static_cast<int64_t>(rows.size()), static_cast<int64_t>(rows[0].size())};
  made.rows = prints_of(rows);
  made.columns = prints_of(transposed(rows));
  ElementNorms norms;
  for (const auto& row : rows)
    for (const double value : row) {
      norms.sum += value;
      norms.one += std::abs(value);
      norms.two += value * value;
      norms.four += std::pow(value, 4);
    }
  made.norms = {norms.sum, norms.one, std::sqrt(norms.two), std::pow(norms.four, 0.25)};
  return made;
}

DrillTensor scalar(double value) {
  DrillTensor made = tensor_of({{value}});
  made.shape.clear();
  made.columns.reset();
  return made;
}

Sketch sketch_of(const std::vector<double>& values) {
  std::vector<double> made;
  for (unsigned seed = 1; seed <= 4; ++seed) {
    std::mt19937 bits(seed);
    double sum = 0;
    for (const double value : values) sum += bits() % 2 == 0 ? value : -value;
    made.push_back(sum);
  }
  made.push_back(std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0)));
  return made;
}

Matrix times(Matrix rows, double factor) {
  for (auto& row : rows)
    for (double& value : row) value *= factor;
  return rows;
}

// A layer whose output are the rows, and a mean of squares times `weight`.
DrillRank trained_on(const Matrix& rows, double weight = 1) {
  DrillRank made;
  made.ended = true;
  const auto count = static_cast<double>(rows.size());
  made.calls.push_back({"torch.nn.functional.linear",
                        "0",
                        "Linear",
                        "train.py:7",
                        static_cast<int64_t>(rows.size()),
                        {},
                        {tensor_of(rows)}});
  double loss = 0;
  std::vector<double> parameter(rows[0].size(), 0.0);
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) {
      loss += weight * row[i] * row[i] / count;
      parameter[i] += weight * 2 * row[i] / count;
    }
  made.calls.push_back({"torch.nn.functional.mse_loss",
                        "",
                        "MSELoss",
                        "train.py:8",
                        static_cast<int64_t>(rows.size()),
                        {0},
                        {scalar(loss)}});
  made.gradients.push_back({1, 0, scalar(1)});
  made.gradients.push_back({0, 0, tensor_of(times(rows, weight * 2 / count))});
  made.parameters.push_back({"0.bias", sketch_of({1, 2, 3}), sketch_of(parameter)});
  return made;
}

Matrix batch_of(int64_t rows) {
  std::mt19937 bits(11);
  std::normal_distribution<double> normal;
  Matrix made(static_cast<size_t>(rows), std::vector<double>(3));
  for (auto& row : made)
    for (double& value : row) value = normal(bits);
  return made;
}

// Of the gradients the sum over the ranks, by `factor`, is what the optimizer finds.
void set_steps(DrillFacts* facts, double factor) {
  ProgramStep step;
  step.names = {"0.bias"};
  step.params = {sketch_of({1, 2, 3})};
  facts->one_step = step;
  facts->one_step.grads = {facts->one.parameters[0].gradient};
  std::vector<double> sum(5, 0.0);
  for (const DrillRank& rank : facts->ranks)
    for (size_t i = 0; i < 5; ++i) sum[i] += (*rank.parameters[0].gradient)[i] / factor;
  step.grads = {sum};
  facts->steps.assign(facts->ranks.size(), step);
}

void set_samples(DrillFacts* facts, const std::vector<std::vector<std::string>>& samples) {
  for (size_t rank = 0; rank < samples.size(); ++rank) {
    facts->steps[rank].samples = samples[rank];
    facts->one_step.samples.insert(facts->one_step.samples.end(), samples[rank].begin(),
                                   samples[rank].end());
  }
}

// Rows dealt in turn, so that one device has them in another order. `weight`: of each rank's loss,
// by its share of the rows.
template <class F>
DrillFacts dealt(const std::vector<size_t>& counts, F weight, double factor) {
  DrillFacts facts;
  facts.step = 3;
  const size_t total = std::accumulate(counts.begin(), counts.end(), size_t{0});
  const Matrix batch = batch_of(static_cast<int64_t>(total));
  std::vector<Matrix> of_ranks(counts.size());
  std::vector<std::vector<std::string>> samples(counts.size());
  for (size_t row = 0, rank = 0; row < total; rank = (rank + 1) % counts.size()) {
    if (of_ranks[rank].size() == counts[rank]) continue;
    samples[rank].push_back(std::to_string(row));
    of_ranks[rank].push_back(batch[row++]);
  }
  for (const Matrix& rows : of_ranks)
    facts.ranks.push_back(
        trained_on(rows, weight(double(rows.size()) / static_cast<double>(total))));
  facts.one = trained_on(batch);
  set_steps(&facts, factor);
  set_samples(&facts, samples);
  return facts;
}

DrillFacts even(size_t world, double weight = 1) {
  return dealt(
      std::vector<size_t>(world, 4), [=](double) { return weight; }, double(world));
}

TEST(Drill, WhatFitsNamesNothing) {
  for (const size_t world : {2, 3, 5}) {
    const DrillFinding found = judge_drill(even(world));
    EXPECT_EQ(found.stage, DrillStage::nothing) << sentence_of(found);
    EXPECT_EQ(found.compared, 4);
    EXPECT_EQ(found.skipped, 0);
  }
}

TEST(Drill, UnevenRowsAreWrongUnlessTheirLossesAreWeighted) {
  const auto weighted = [](double share) { return 3 * share; };
  EXPECT_EQ(judge_drill(dealt({4, 1, 3}, weighted, 3)).stage, DrillStage::nothing);
  const DrillFinding found = judge_drill(dealt(
      {4, 1, 3}, [](double) { return 1.0; }, 3));
  EXPECT_EQ(found.stage, DrillStage::backward);
  EXPECT_EQ(found.place.function, "torch.nn.functional.mse_loss");
  EXPECT_EQ(found.input.module, "0");
  EXPECT_FALSE(found.ratio);
}

TEST(Drill, TheFirstWrongOutputIsNamed) {
  DrillFacts facts = even(3);
  facts.ranks[1].calls[0].outputs[0] = tensor_of(times(batch_of(4), 1.1));
  facts.ranks[2].calls[1].outputs[0] = scalar(7);
  const DrillFinding found = judge_drill(facts);
  EXPECT_EQ(found.stage, DrillStage::forward);
  EXPECT_GT(*found.distance, 0.01);
  EXPECT_THAT(sentence_of(found),
              HasSubstr("torch.nn.functional.linear in module 0 (Linear), forward, "
                        "at train.py:7: output [4, 3] differs by"));
}

TEST(Drill, WhatLiesWithinTheBoundIsNone) {
  DrillFacts facts = even(2);
  Matrix rows = batch_of(8);
  facts.one.calls[0].outputs[0] = tensor_of(times(rows, 1 + 1e-12));
  EXPECT_EQ(judge_drill(facts).stage, DrillStage::nothing);
  facts.one.calls[0].outputs[0] = tensor_of(times(rows, 1 + 1e-7));
  EXPECT_EQ(judge_drill(facts).stage, DrillStage::forward);
}

TEST(Drill, SamplesThatMeetAreSeenByTheShape) {
  DrillFacts facts = even(2);
  for (DrillRank& rank : facts.ranks) rank.calls[1].outputs[0] = tensor_of(Matrix(4, {1, 2, 3, 4}));
  facts.one.calls[1].outputs[0] = tensor_of(Matrix(8, std::vector<double>(8, 2)));
  const DrillFinding found = judge_drill(facts);
  EXPECT_EQ(found.stage, DrillStage::forward);
  EXPECT_THAT(sentence_of(found),
              HasSubstr("output [4, 4] is [8, 8] on one device: it is not computed row by row"));
}

TEST(Drill, AConstantFactorOfWhatComesBackIsTold) {
  const DrillFinding found = judge_drill(even(3, 1.0 / 3));  // as if DDP did not average
  EXPECT_EQ(found.stage, DrillStage::backward);
  EXPECT_EQ(found.place.function, "torch.nn.functional.mse_loss");
  ASSERT_TRUE(found.ratio);
  EXPECT_NEAR(*found.ratio, 1.0 / 3, 1e-9);
  EXPECT_THAT(sentence_of(found), HasSubstr("is 0.333333 times the correct value"));
}

TEST(Drill, ALossThatIsSummedIsNamedNotWhatFollowsIt) {
  DrillFacts facts = even(2, 0.5);  // the sum over ranks is the loss of one device
  for (DrillRank* rank : {&facts.ranks[0], &facts.ranks[1], &facts.one}) {
    DrillCall after = rank->calls[1];
    after.name = "torch.Tensor.mul";
    after.inputs = {1};
    rank->calls.push_back(after);
    rank->gradients.insert(rank->gradients.begin(), {2, 0, scalar(1)});
  }
  const DrillFinding found = judge_drill(facts);
  EXPECT_EQ(found.place.function, "torch.nn.functional.mse_loss") << sentence_of(found);
}

TEST(Drill, SumsAreDueWhereAProgramTakesSums) {
  EXPECT_EQ(judge_drill(dealt(
                            {4, 4}, [](double share) { return share; }, 1))
                .stage,
            DrillStage::nothing);
  const DrillFinding found = judge_drill(dealt(
      {4, 4}, [](double) { return 1.0; }, 1));
  EXPECT_EQ(found.stage, DrillStage::reduction);  // a mean is made nowhere
  EXPECT_NEAR(*found.ratio, 2, 1e-6);
}

TEST(Drill, WhatOnlyRanksCallIsPassedOver) {
  DrillFacts facts = even(2);
  for (DrillRank& rank : facts.ranks) {
    DrillCall gather = rank.calls[1];
    gather.name = "_AllGather.apply";
    gather.inputs = {0};
    gather.line = "train.py:9";
    rank.calls.insert(rank.calls.begin() + 1, gather);
    rank.calls[2].inputs = {1};
    rank.gradients[0].call = 2;
  }
  DrillFinding found = judge_drill(facts);
  EXPECT_EQ(found.stage, DrillStage::calls);
  EXPECT_EQ(found.compared, 4);
  EXPECT_THAT(sentence_of(found), HasSubstr("ranks call _AllGather.apply"));
  EXPECT_THAT(sentence_of(found), HasSubstr("one device calls no such operator"));
  facts.ranks[1].calls[2].outputs[0] = scalar(7);
  found = judge_drill(facts);
  EXPECT_EQ(found.place.function, "torch.nn.functional.mse_loss");
  EXPECT_THAT(sentence_of(found),
              HasSubstr("the calls diverge before that: ranks call _AllGather.apply"));
}

TEST(Drill, WhatNoRankCallsOrOneAloneIsTold) {
  DrillFacts facts = even(2);
  facts.ranks[1].calls.pop_back();
  facts.ranks[1].gradients.erase(facts.ranks[1].gradients.begin());
  const DrillFinding found = judge_drill(facts);
  EXPECT_EQ(found.stage, DrillStage::calls);
  EXPECT_EQ(found.parting->one.function, "torch.nn.functional.mse_loss");
  EXPECT_EQ(found.parting->ranks.function, "");
}

TEST(Drill, AGradientThatARankHasNotIsWrong) {
  DrillFacts facts = even(2);
  facts.ranks[1].gradients.pop_back();
  const DrillFinding found = judge_drill(facts);
  EXPECT_EQ(found.stage, DrillStage::backward);
  EXPECT_THAT(sentence_of(found), HasSubstr("is not on every rank"));
}

TEST(Drill, ParametersComeAfterOperators) {
  DrillFacts facts = even(2);
  facts.steps[0].params[0] = sketch_of({1, 2, 4});
  EXPECT_EQ(judge_drill(facts).stage, DrillStage::update);
  facts.steps[0].grads[0] = sketch_of({1, 2, 4});
  EXPECT_EQ(judge_drill(facts).stage, DrillStage::reduction);
  facts.ranks[1].parameters[0].gradient = sketch_of({5, 5, 5});
  const DrillFinding found = judge_drill(facts);
  EXPECT_EQ(found.stage, DrillStage::local_gradient);
  EXPECT_EQ(found.parameter, "0.bias");
}

TEST(Drill, OtherWeightsComeBeforeAllThatUsesThem) {
  DrillFacts facts = even(3);
  facts.ranks[1].calls[0].outputs[0] = tensor_of(times(batch_of(4), 1.1));
  for (const size_t rank : {1, 2}) facts.ranks[rank].parameters[0].values = sketch_of({1, 2, 4});
  const DrillFinding found = judge_drill(facts);
  EXPECT_EQ(found.stage, DrillStage::start);
  EXPECT_THAT(found.ranks, testing::ElementsAre(1, 2));
  EXPECT_THAT(sentence_of(found), HasSubstr("0.bias of ranks 1 and 2 differs by"));
  for (DrillRank& rank : facts.ranks) rank.parameters[0].values.reset();
  EXPECT_EQ(judge_drill(facts).stage, DrillStage::forward) << "not known is not other";
}

TEST(Drill, GatheredAndTurnedTensorsAreComparedByTheirElements) {
  DrillFacts facts = even(2);
  const Matrix all = {{1, 2}, {3, 4}, {5, 7}, {0, 9}};
  facts.one.calls[1].outputs[0] = tensor_of(all);
  facts.ranks[0].calls[1].outputs[0] = tensor_of({all[2], all[0], all[3], all[1]});
  facts.ranks[1].calls[1].outputs[0] = tensor_of({all[0], all[1], all[3], all[2]});
  for (DrillRank* rank : {&facts.ranks[0], &facts.ranks[1], &facts.one})
    rank->gradients.erase(rank->gradients.begin());
  EXPECT_EQ(judge_drill(facts).stage, DrillStage::nothing);
  facts.ranks[1].calls[1].outputs[0] = tensor_of({all[0], all[1], all[3], {5, 7.1}});
  EXPECT_EQ(judge_drill(facts).stage, DrillStage::forward);
}

TEST(Drill, SamplesAlongTheSecondDimensionAreRowsToo) {
  DrillFacts facts = even(2);
  for (DrillRank* rank : {&facts.ranks[0], &facts.ranks[1], &facts.one})
    rank->calls[0].outputs[0] =
        tensor_of(transposed(rank == &facts.one ? batch_of(8) : batch_of(4)));
  const Matrix batch = batch_of(8);  // the first half of it is batch_of(4)
  facts.ranks[1].calls[0].outputs[0] =
      tensor_of(transposed({batch[4], batch[6], batch[5], batch[7]}));
  for (DrillRank* rank : {&facts.ranks[0], &facts.ranks[1], &facts.one}) rank->gradients.pop_back();
  EXPECT_EQ(judge_drill(facts).stage, DrillStage::nothing);
}

TEST(Drill, WhatIsTooLargeIsNotAccused) {
  DrillFacts facts = even(2);
  for (DrillRank& rank : facts.ranks) {
    rank.calls[1].outputs[0] = scalar(9);
    rank.calls[1].outputs[0].rows.reset();
  }
  const DrillFinding found = judge_drill(facts);
  EXPECT_EQ(found.stage, DrillStage::nothing);
  EXPECT_EQ(found.skipped, 2);
}

TEST(Drill, WhatCannotBeComparedSaysWhy) {
  DrillFacts facts = even(2);
  facts.one_step.samples[0] = "another";
  EXPECT_THAT(sentence_of(judge_drill(facts)), HasSubstr("not drilled: a forward of the ranks"));
  facts.ranks[1].why = "optimizer.step() is given a closure";
  EXPECT_THAT(sentence_of(judge_drill(facts)), HasSubstr("not drilled: optimizer.step() is given"));
  facts.ranks[1].why.clear();
  facts.ranks[1].ended = false;
  EXPECT_THAT(sentence_of(judge_drill(facts)), HasSubstr("not drilled: the step was not recorded"));
  facts.one.calls.clear();
  facts.ranks[1].ended = true;
  EXPECT_EQ(judge_drill(facts).stage, DrillStage::not_drilled);
}

const std::string kCall =
    R"({"kind": "call", "name": "f", "module": "", "class": "", "line": "a.py:1", "samples": 2, )"
    R"("inputs": [], "outputs": [{"shape": [2, 1], "norms": [3, 3, 2, 2], "rows": [1, 2, 3, 4]}], )"
    R"("wholes": [], "numbers": [0.5], "indices": [[2, 1, 1, 1, 1]]})";

TEST(DrillRecording, LinesAreReadAndOthersRefused) {
  const TemporaryFolder folder;
  const auto read = [&](const std::string& text) {
    return read_drill_rank(folder.write("drill-0.jsonl", text));
  };
  const auto found = read(kCall + "\n" +
                          R"({"kind": "gradient", "call": 0, "output": 0, "shape": [2, 1], )"
                          R"("norms": [null, 1, 1, 1], "rows": [1, null, 3, 4]})" +
                          "\n" + R"({"kind": "end", "calls": 1, "why": ""})" + "\n");
  ASSERT_TRUE(found);
  EXPECT_TRUE(found.value().ended);
  EXPECT_EQ(found.value().calls[0].outputs[0].rows->size(), 4U);
  EXPECT_EQ(found.value().calls[0].numbers, std::vector<double>{0.5});
  EXPECT_FALSE(found.value().gradients[0].value.rows);
  EXPECT_FALSE(found.value().gradients[0].value.norms);
  EXPECT_FALSE(read(kCall + "\n").value().ended);
  EXPECT_TRUE(read(kCall).value().calls.empty()) << "it was cut";
  for (const char* line :
       {R"({"kind": "gradient", "call": 1, "output": 0, "shape": [], "norms": [], "rows": []})",
        R"({"kind": "gradient", "call": 0, "output": 1, "shape": [], "norms": [], "rows": []})",
        R"({"kind": "parameter", "name": "0.bias", "gradient": null})", R"({"kind": "other"})",
        "{}", "[1", R"({"kind": "end", "calls": "1", "why": ""})"})
    EXPECT_FALSE(read(kCall + "\n" + line + "\n")) << line;
  std::string own = kCall;
  own.replace(own.find("[]"), 2, "[0]");
  EXPECT_FALSE(read(own + "\n")) << "no call is its own input";
  EXPECT_THAT(to_text(read(kCall + "\n{\"kind\"\n").errors()[0]),
              HasSubstr("drill-0.jsonl:2:8: error: is no line of the agent: "));
}

}  // namespace
}  // namespace lockstep
