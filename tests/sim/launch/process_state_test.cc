#include "sim/launch/process_state.h"

#include <gmock/gmock.h>

#include "sim/launch/protocol.h"
#include "tests/scenarios/parse/temporary_file.h"

namespace lockstep {
namespace {

std::vector<std::string> stack_of(const std::string& frames) {
  const TemporaryFolder folder;
  return read_stack(folder.write("rank-0.stack", frames + kStackEnd + "\n"));
}

TEST(ReadStack, IsReadUpToWhatAHandlerWritesAtMost) {
  EXPECT_EQ(stack_of("/lib/libc.so.6(pause+0x10)[0x7f]\n").size(), 1u);
  EXPECT_THAT(stack_of(std::string(size_t{1} << 21, '\n')), testing::IsEmpty());
}

}  // namespace
}  // namespace lockstep
