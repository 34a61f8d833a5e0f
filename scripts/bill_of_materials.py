"""Prints the bill of materials of a build on this machine as SPDX 2.3 (JSON): lockstep, what is linked into its programs or
compiled into them, and what they load."""
import datetime
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Of Debian's packages: licence in SPDX's words, how the wheel's program has it, how the .deb's programs do.
PARTS = {
    "libfmt-dev": ("MIT", "STATIC_LINK", "STATIC_LINK"),  # as headers, and the three that follow
    "nlohmann-json3-dev": ("MIT", "STATIC_LINK", "STATIC_LINK"),
    "libcli11-dev": ("BSD-3-Clause", "STATIC_LINK", "STATIC_LINK"),
    "libvalijson-dev": ("BSD-2-Clause", "STATIC_LINK", "STATIC_LINK"),
    "libxxhash-dev": ("BSD-2-Clause", "STATIC_LINK", "DYNAMIC_LINK"),
    "zlib1g-dev": ("Zlib", "STATIC_LINK", "DYNAMIC_LINK"),
    "libssl-dev": ("Apache-2.0", "STATIC_LINK", "DYNAMIC_LINK"),
    "libgloo-dev": ("BSD-3-Clause", None, "DYNAMIC_LINK"),
    "libtorch-dev": ("BSD-3-Clause", None, "DYNAMIC_LINK"),
}


def said(*command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()


def package(name, version, licence, purl):
    return {"SPDXID": f"SPDXRef-{re.sub(r'[^A-Za-z0-9.]', '-', name)}", "name": name, "versionInfo": version,
            "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": licence,
            "licenseDeclared": licence, "copyrightText": "NOASSERTION",
            "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}]}


def main():
    version = re.search(r"project\(lockstep VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    commit = said("git", "rev-parse", "HEAD")
    own = [package("lockstep-verify", version, "Apache-2.0", f"pkg:pypi/lockstep-verify@{version}"),
           package("lockstep", version, "Apache-2.0", f"pkg:deb/lockstep@{version}")]
    packages = list(own)
    relations = [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": one["SPDXID"]}
                 for one in own]
    for name, (licence, *ways) in PARTS.items():
        installed = said("dpkg-query", "-W", "-f", "${Version}", name)
        if not installed:  # this build has another
            continue
        part = package(name, installed, licence, f"pkg:deb/debian/{name}@{installed}")
        packages.append(part)
        relations += [{"spdxElementId": one["SPDXID"], "relationshipType": way, "relatedSpdxElement": part["SPDXID"]}
                      for one, way in zip(own, ways) if way]
    d3 = re.search(r"d3js.org v([0-9.]+)", (ROOT / "sim/report/html/d3.v7.min.js").read_text()[:200])[1]
    packages.append(package("d3", d3, "ISC", f"pkg:npm/d3@{d3}"))  # within every HTML page
    relations += [{"spdxElementId": one["SPDXID"], "relationshipType": "CONTAINS", "relatedSpdxElement": "SPDXRef-d3"}
                  for one in own]
    moment = datetime.datetime.fromtimestamp(int(said("git", "log", "-1", "--format=%ct")), datetime.timezone.utc)
    json.dump({"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
               "name": f"lockstep-{version}", "documentNamespace": f"https://spdx.org/spdxdocs/lockstep-{commit}",
               "creationInfo": {"created": moment.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: scripts/release"]},
               "packages": packages, "relationships": relations}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
