#include "sim/tools/program/run_faults.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "sim/tools/program/run_watch.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

Json acted_out(const std::string& text) {
  const auto fault = parse_program_fault(text, 3);
  return fault ? agent_json({fault.value()})[0] : Json(fault.errors()[0].message);
}

TEST(ProgramFaults, AreThoseOfScenarios) {
  const Json kill = acted_out("kill rank=1 step=3");
  EXPECT_EQ(kill["kind"], "kill");
  EXPECT_EQ(kill["phase"], "backward");  // as in scenarios, where none is given
  EXPECT_EQ(kill["first"], 3);
  EXPECT_EQ(kill["last"], 3);
  EXPECT_EQ(kill["once"], true);
  const Json stall = acted_out("stall rank=2 duration_ms=20 phase=forward step=2 last_step=4");
  EXPECT_EQ(stall["phase"], "forward");
  EXPECT_EQ(stall["last"], 4);
  EXPECT_EQ(stall["probability"], 1);
  EXPECT_EQ(acted_out("stop rank=0 collective=all_reduce")["phase"], Json());
  EXPECT_EQ(acted_out("stop rank=0 collective=7")["collective"], 7);
  EXPECT_EQ(acted_out("stop rank=0 at_ms=250 duration_ms=5")["at_ms"], 250);
}

TEST(ProgramFaults, EachKindIsKnownOrRefusedWithThoseThatAre) {
  for (const FaultRow& row : fault_rows()) {
    const auto fault = parse_program_fault(row.word, 3);
    if (fault) continue;  // it needs no key
    const InputError& error = fault.errors()[0];
    const bool refused = error.message.find("is no fault of a program") != std::string::npos;
    const auto known = program_fault_kinds();
    EXPECT_EQ(refused, std::find(known.begin(), known.end(), row.kind) == known.end()) << row.word;
    if (refused) {
      EXPECT_TRUE(error.allowed.starts_with("slow, imbalance, ")) << error.allowed;
    }
  }
}

TEST(RankErrors, SentencesOfGlooAndC10dAreTranslated) {
  const std::vector<std::pair<const char*, ErrorKind>> sentences = {
      {"[../gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800ms for recv operation "
       "to "
       "complete",
       ErrorKind::timeout},
      {"[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer "
       "[127.0.0.1]:9",
       ErrorKind::peer_lost},
      {"[./gloo/transport/tcp/pair.cc:589] Read error [127.0.0.1]:9: Connection reset by peer",
       ErrorKind::peer_lost},
      {"Application timeout caused pair closure", ErrorKind::timeout},
      {"Timed out after 2 seconds waiting for clients. 1/2 clients joined.", ErrorKind::timeout},
      {"[1] is setting up NCCL communicator: wait timeout after 1800ms, keys: /x",
       ErrorKind::timeout},
      {"[/gloo/allreduce.cc:10] op.preamble.length <= op.nbytes. 76 vs 40", ErrorKind::rejected},
      {"HTTP request timed out", ErrorKind::exception},
      {"rank 2 is bad", ErrorKind::exception}};
  for (const auto& [sentence, kind] : sentences)
    EXPECT_EQ(error_kind_of(sentence, true), kind) << sentence;
  // Whoever waited in no collective says so of something else.
  EXPECT_EQ(error_kind_of(sentences[0].first, false), ErrorKind::exception);
}

}  // namespace
}  // namespace lockstep
