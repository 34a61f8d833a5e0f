#include <gmock/gmock.h>
#include <sys/stat.h>

#include <random>

#include "sim/analysis/recorded_comparison.h"
#include "tests/scenarios/parse/temporary_file.h"
#include "tests/sim/analysis/made_recording.h"

namespace lockstep {
namespace {

using Gap = RecordedGap::Kind;

class RecordedComparisonTest : public ::testing::Test {
 protected:
  // Nothing: refused.
  std::optional<RecordedComparison> compare_folders(const std::string& a, const std::string& b) {
    const auto x = read_recorded_hashes(a), y = read_recorded_hashes(b);
    if (!x || !y) {
      refusal = to_text((x ? y : x).errors().front());
      return std::nullopt;
    }
    return compare_recordings(x.value(), y.value());
  }
  RecordedComparison compare(const MadeRecording& a, const MadeRecording& b) {
    const std::string pair = fmt::format("{}/{}", folder_.path(), ++pairs_);
    a.write(pair + "/a");
    b.write(pair + "/b");
    const auto made = compare_folders(pair + "/a", pair + "/b");
    EXPECT_TRUE(made) << refusal;
    return made.value_or(RecordedComparison{});
  }
  static std::vector<Gap> kinds(const RecordedComparison& comparison) {
    std::vector<Gap> kinds;
    for (const RecordedGap& gap : comparison.gaps) kinds.push_back(gap.kind);
    return kinds;
  }
  static void rewrite(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }
  static std::string whole(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const TemporaryFolder folder_;
  std::string refusal;
  int pairs_ = 0;
};

TEST_F(RecordedComparisonTest, WholeOnesPass) {
  const auto made = compare({.world_size = 3}, {.world_size = 3});
  EXPECT_EQ(made.verdict, RecordedVerdict::pass);
  EXPECT_TRUE(made.gaps.empty());
  EXPECT_EQ(made.first.steps, 6);
  EXPECT_EQ(made.first.last_step, 6);
  EXPECT_EQ(made.first.tensors, 3 * (6 * 12 + 9));
  // Hashed in other steps: the end was hashed in both.
  const auto apart = compare({.steps = 7, .hash_every = 1}, {.steps = 7, .hash_every = 3});
  EXPECT_EQ(apart.verdict, RecordedVerdict::pass);
  EXPECT_EQ(apart.first.steps, 2);
  // Too short for a step that is hashed.
  EXPECT_EQ(compare({.hash_every = 10}, {.hash_every = 10}).verdict, RecordedVerdict::pass);
}

TEST_F(RecordedComparisonTest, KilledOnesNeverPass) {
  for (const int64_t after : {0, 1, 5}) {
    const auto made = compare({.world_size = 3, .steps = 16, .killed = {{1, after}}},
                              {.world_size = 3, .steps = 16});
    EXPECT_EQ(made.verdict, RecordedVerdict::inconclusive);
    EXPECT_THAT(kinds(made), ::testing::Contains(Gap::no_end));
    EXPECT_EQ(made.gaps.front().rank, 1);
    EXPECT_EQ(made.gaps.front().step, after);
  }
  // In every rank, on both sides, at the same step.
  const MadeRecording cut{.steps = 6, .killed = {{0, 4}, {1, 4}}};
  EXPECT_EQ(compare(cut, cut).verdict, RecordedVerdict::inconclusive);
  EXPECT_EQ(compare(cut, cut).first.last_step, 4);
}

TEST_F(RecordedComparisonTest, OtherLengthsNeverPass) {
  const auto made = compare({.steps = 8}, {.steps = 16});
  EXPECT_EQ(made.verdict, RecordedVerdict::inconclusive);
  EXPECT_EQ(made.gaps.front().kind, Gap::other_length);
  EXPECT_EQ(made.first.last_step, 8);
}

TEST_F(RecordedComparisonTest, ADifferenceIsOneHoweverShortTheRecording) {
  const auto made = compare({.seed = 1, .killed = {{0, 3}, {1, 3}}}, {.seed = 2});
  EXPECT_EQ(made.verdict, RecordedVerdict::fail);
  EXPECT_EQ(made.first.step, 1);
  EXPECT_EQ(made.first.kind, "gradient");
}

TEST_F(RecordedComparisonTest, EveryRankIsCompared) {
  const MadeRecording run{.world_size = 3};
  const std::string a = folder_.path() + "/a", b = folder_.path() + "/b";
  run.write(a);
  run.write(b);
  // A buffer of rank 2, which may differ from rank 0's, but not between the runs.
  const std::string path = b + "/rank-2.hashes";
  std::string text = whole(path);
  const size_t line = text.find("\"step\": 4");
  text[text.find("\"layer1.weight\": \"", text.find("\"buffer\"", line)) + 20] ^= 1;
  rewrite(path, text);
  const auto made = compare_folders(a, b);
  ASSERT_TRUE(made) << refusal;
  EXPECT_EQ(made->verdict, RecordedVerdict::fail);
  EXPECT_EQ(made->first.rank, 2);
  EXPECT_EQ(made->first.step, 4);
  EXPECT_EQ(made->first.kind, "buffer");
  EXPECT_FALSE(made->ranks_of_b.found());
}

TEST_F(RecordedComparisonTest, WhatTheRecorderCannotHaveWrittenIsRefused) {
  const std::string folder = folder_.path() + "/run";
  const auto refused = [&](const std::string& file, const std::string& from,
                           const std::string& to) {
    MadeRecording{.hash_every = 2}.write(folder);
    std::string text = whole(folder + "/" + file);
    text.replace(text.find(from), from.size(), to);
    rewrite(folder + "/" + file, text);
    refusal.clear();
    EXPECT_FALSE(compare_folders(folder, folder)) << file << " " << to;
    return refusal;
  };
  EXPECT_THAT(refused("recording.json", "\"hash_every\": 2", "\"hash_every\": 0"),
              ::testing::HasSubstr("how it was hashed"));
  EXPECT_THAT(refused("rank-1.hashes", "\"step\": 4", "\"step\": 5"),
              ::testing::HasSubstr("hash_every is 2"));
  EXPECT_THAT(refused("rank-1.hashes", "\"step\": 4", "\"step\": 2"),
              ::testing::HasSubstr("another order"));
  EXPECT_THAT(refused("rank-1.hashes", "\"end\": true", "\"and\": true"),
              ::testing::HasSubstr("no line"));
  EXPECT_THAT(refused("rank-0.hashes", "\"step\": 6, \"end\"", "\"step\": 8, \"end\""),
              ::testing::HasSubstr("end after step 6"));
  MadeRecording{}.write(folder);
  std::filesystem::remove(folder + "/rank-1.hashes");
  EXPECT_FALSE(compare_folders(folder, folder));
  EXPECT_THAT(refusal, ::testing::HasSubstr("cannot be opened"));
  MadeRecording{}.write(folder);
  std::filesystem::copy_file(folder + "/rank-0.records", folder + "/rank-1.records",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_FALSE(compare_folders(folder, folder));
  EXPECT_THAT(refusal, ::testing::HasSubstr("is of rank 0 of 2"));
}

enum class Change { same, killed, shorter, cut, flipped };

// Pairs of the same run: one of them may be cut anywhere, shorter, or have one bit changed.
// Neither waits nor dies of what lies where a recording was.
TEST_F(RecordedComparisonTest, AStrangersFilesAreRefused) {
  const MadeRecording made{.steps = 2};
  const std::string good = folder_.path() + "/good", bad = folder_.path() + "/bad";
  made.write(good);
  const auto refused_with = [&](const std::string& name, auto&& damage) {
    std::filesystem::remove_all(bad);
    made.write(bad);
    std::filesystem::remove(bad + "/" + name);
    damage(bad + "/" + name);
    EXPECT_FALSE(compare_folders(bad, good)) << name;
    return refusal;
  };
  const auto pipe = [](const std::string& path) { ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0); };
  const auto deep = [](const std::string& path) {
    rewrite(path, R"({"format": "lockstep_recording", "version": 1, "world_size": 2, "name": )" +
                      std::string(200'000, '[') + std::string(200'000, ']') + "}\n");
  };
  const auto deep_line = [](const std::string& path) {
    rewrite(path, R"({"step": 1, "end": )" + std::string(200'000, '[') + std::string(200'000, ']') +
                      "}\n");
  };
  EXPECT_THAT(refused_with("recording.json", pipe), ::testing::HasSubstr("this is a pipe"));
  EXPECT_THAT(refused_with("rank-1.hashes", pipe), ::testing::HasSubstr("this is a pipe"));
  EXPECT_THAT(refused_with("recording.json", deep), ::testing::HasSubstr("is no recording"));
  EXPECT_THAT(refused_with("rank-1.hashes", deep_line), ::testing::HasSubstr("no line of hashes"));
}

class RandomPairs : public RecordedComparisonTest {
 protected:
  int64_t below(int64_t bound) {
    return std::uniform_int_distribution<int64_t>(0, bound - 1)(random_);
  }
  MadeRecording drawn() {
    MadeRecording made;
    made.world_size = 1 + below(3);
    made.hash_every = 1 + below(4);
    made.steps = made.hash_every + below(8);
    made.seed = static_cast<uint64_t>(1 + below(1000));
    return made;
  }
  std::string any_file(const std::string& folder, int64_t world_size) {
    return fmt::format("{}/rank-{}.hashes", folder, below(world_size));
  }

  std::mt19937_64 random_{20261123};
};

TEST_F(RandomPairs, NoneThatDiffersPassesAndNoneThatAgreesFails) {
  int differ = 0, agree = 0, unsure = 0, refused = 0;
  for (int pair = 0; pair < 500; ++pair) {
    const MadeRecording run = drawn();
    const std::string a = fmt::format("{}/{}/a", folder_.path(), pair),
                      b = fmt::format("{}/{}/b", folder_.path(), pair);
    run.write(a);
    MadeRecording other = run;
    const auto what = static_cast<Change>(below(5));
    if (what == Change::killed)
      for (int64_t rank = below(run.world_size); rank < run.world_size; ++rank)
        other.killed.emplace_back(rank, below(run.steps + 1));
    if (what == Change::shorter) other.steps = below(run.steps);
    // The end of a shorter run is another state.
    other.write(b);
    if (what == Change::cut || what == Change::flipped) {
      const std::string path = any_file(b, run.world_size);
      std::string text = whole(path);
      const auto at = static_cast<size_t>(below(static_cast<int64_t>(text.size())));
      if (what == Change::cut)
        text.resize(at);
      else
        text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
      rewrite(path, text);
    }
    const auto made = below(2) == 0 ? compare_folders(a, b) : compare_folders(b, a);
    const std::string told = fmt::format("pair {}, kind {}", pair, static_cast<int>(what));
    if (!made) {
      EXPECT_TRUE(what == Change::flipped) << told << refusal;
      ++refused;
    } else if (what == Change::same) {
      EXPECT_EQ(made->verdict, RecordedVerdict::pass) << told;
      ++agree;
    } else if (what == Change::flipped) {
      EXPECT_NE(made->verdict, RecordedVerdict::pass) << told;
      ++differ;
    } else {
      EXPECT_EQ(made->verdict, RecordedVerdict::inconclusive) << told;
      ++unsure;
    }
    std::filesystem::remove_all(fmt::format("{}/{}", folder_.path(), pair));
  }
  EXPECT_GT(agree, 50);
  EXPECT_GT(differ, 30);
  EXPECT_GT(unsure, 150);
  EXPECT_GT(refused, 10);
}

TEST_F(RandomPairs, RecordsThatHoldAnotherStateAreSeen) {
  MadeRecording run{.world_size = 2};
  const std::string a = folder_.path() + "/a", b = folder_.path() + "/b";
  run.write(a);
  run.write(b);
  RankRecords records;
  std::string why;
  ASSERT_TRUE(read_records(b + "/rank-1.records", &records, &why));
  for (Event& event : records.events)
    if (event.kind == static_cast<uint16_t>(EventKind::state_hash) && event.step == 3)
      event.value ^= 1 << 7;
  write_records(b + "/rank-1.records", records);
  const auto made = compare_folders(a, b);
  ASSERT_TRUE(made) << refusal;
  EXPECT_EQ(made->verdict, RecordedVerdict::inconclusive);
  EXPECT_EQ(kinds(*made), std::vector{Gap::chains_differ});
}

}  // namespace

}  // namespace lockstep
