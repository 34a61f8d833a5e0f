#include "sim/report/folded_text.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace lockstep {
namespace {

constexpr const char* kHelp =
    "Judge whether training on several ranks gives the weights of one device.\n"
    "Usage: lockstep verify [options] FILE|FOLDER ...\n"
    "\n"
    "Output\n"
    "  --json FILE                Write the result as JSON (see lockstep schema --result)\n"
    "  --annotations auto|github|none\n"
    "                             Annotations and job summary of GitHub Actions (auto: where it "
    "runs)\n"
    "  -q,--quiet                 Only the last line\n"
    "\n"
    "Examples, from the root of the repository\n"
    "  lockstep verify scenarios/equivalence --filter toy --json result.json\n"
    "\n"
    "Exit codes\n"
    "  2      bad input, or an output could not be written; nothing was concluded\n";

TEST(FoldedHelp, HangsDescriptionsBelowTheirBeginning) {
  EXPECT_EQ(folded_help("  --json FILE                Write the result as JSON (see it)\n", 60),
            "  --json FILE                Write the result as JSON (see\n"
            "                             it)\n");
}

TEST(FoldedHelp, BeginsDescriptionsBelowTheirOptionsWhereThereIsNoRoom) {
  EXPECT_EQ(folded_help(kHelp, 40),
            "Judge whether training on several ranks\n"
            "  gives the weights of one device.\n"
            "Usage: lockstep verify [options]\n"
            "  FILE|FOLDER ...\n"
            "\n"
            "Output\n"
            "  --json FILE\n"
            "      Write the result as JSON (see\n"
            "      lockstep schema --result)\n"
            "  --annotations auto|github|none\n"
            "      Annotations and job summary of\n"
            "      GitHub Actions (auto: where it\n"
            "      runs)\n"
            "  -q,--quiet\n"
            "      Only the last line\n"
            "\n"
            "Examples, from the root of the repository\n"
            "  lockstep verify scenarios/equivalence --filter toy --json result.json\n"
            "\n"
            "Exit codes\n"
            "  2      bad input, or an output could\n"
            "         not be written; nothing was\n"
            "         concluded\n");
}

TEST(FoldedHelp, LosesNoWordAndLeavesWhatFits) {
  EXPECT_EQ(folded_help(kHelp, 120), kHelp);
  for (size_t columns = 20; columns < 130; ++columns) {
    std::istringstream before{std::string(kHelp)}, after(folded_help(kHelp, columns));
    std::string a, b;
    while (before >> a) {
      ASSERT_TRUE(after >> b) << columns;
      ASSERT_EQ(a, b) << columns;
    }
    ASSERT_FALSE(after >> b) << columns;
  }
}

}  // namespace
}  // namespace lockstep
