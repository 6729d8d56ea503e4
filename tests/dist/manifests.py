#!/usr/bin/env python3
"""The manifests of examples/kubernetes: Kubernetes' schema, and what their pods would run.

    tests/dist/manifests.py TRANSLATE_TRAIN [--crd FILE]

kubernetes-validate (PyPI) checks each document, strictly, and of a PyTorchJob the template of its pods. --crd: the operator's
manifests/base/crds/kubeflow.org_pytorchjobs.yaml (kubeflow/training-operator up to v1.9) checks the whole of it. Then the command of each
pod runs on a separate host (namespace_hosts.py), with the variables that the Job controller or the operator sets; the files equal
those written by one process. Nothing here is a cluster. Ends with 77 where kubernetes-validate is not installed or namespaces are refused.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import namespace_hosts
import ranks
from ranks import fail

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "examples/kubernetes"
SHORT = ("--enc-depth 1 --dec-depth 1 --dim-emb 32 --transformer-dim-ffn 64 --transformer-heads 2 --max-length 40 --mini-batch-words 200 "
         "--dim-vocabs 120 --valid-sets /data/valid.de /data/valid.en --autotune-gemm off --cpu-threads 1 --save-freq 6u --after 6u").split()


def strict(schema):
    """The schema, with no property that it does not name."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: value if key == "enum" else strict(value) for key, value in schema.items()}
    if "properties" in result:
        result.setdefault("additionalProperties", False)
    if result.pop("x-kubernetes-int-or-string", False):
        result.pop("type", None)
    return result


def check_schemas(documents, crd):
    import jsonschema
    import kubernetes_validate
    import yaml

    for document in documents:
        name = f"{document['kind']} {document['metadata']['name']}"
        if document["kind"] == "PyTorchJob":
            if crd:
                schema = strict(yaml.safe_load(pathlib.Path(crd).read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
                schema["properties"]["metadata"] = {"type": "object"}
                errors = [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(document)]
                print(f"manifests: {name}: {crd}: {errors or 'valid'}")
                for error in errors:
                    fail(f"{name}: {error}")
            documents_to_check = [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": role.lower()}, "spec": replica["template"]["spec"]}
                                  for role, replica in document["spec"]["pytorchReplicaSpecs"].items()]
        else:
            documents_to_check = [document]
        for each in documents_to_check:
            try:
                kubernetes_validate.validate(each, kubernetes_validate.latest_version(), strict=True)
                print(f"manifests: {name}: {each['kind']}: valid for Kubernetes {kubernetes_validate.latest_version()}")
            except kubernetes_validate.ValidationError as error:
                fail(f"{name}: {error.message}")


def pods(document):
    """Environment and command of each."""
    if document["kind"] == "Job":
        spec, count = document["spec"]["template"]["spec"], document["spec"]["completions"]
        for index in range(count):
            environment = {"JOB_COMPLETION_INDEX": str(index)}
            yield environment, [re.sub(r"\$\((\w+)\)", lambda found: environment[found[1]], word) for word in spec["containers"][0]["command"]]
        return
    roles = document["spec"]["pytorchReplicaSpecs"]
    size, rank = sum(role["replicas"] for role in roles.values()), 0
    for role in ("Master", "Worker"):
        for _ in range(roles[role]["replicas"]):
            yield ({"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": f"{document['metadata']['name']}-master-0", "MASTER_PORT": "23456",
                    "PET_NODE_RANK": str(rank), "PET_NNODES": str(size)}, roles[role]["template"]["spec"]["containers"][0]["command"])
            rank += 1


def run_pods(document, program, cluster, folder):
    """As one process and on a host for each pod."""
    def command(words, run):
        return [program, *(word.replace("/data/run", f"{folder}/{run}").replace("/data/", f"{folder}/") for word in [*words[1:], *SHORT])]

    name = document["kind"]
    clean = {key: value for key, value in os.environ.items() if key not in ranks.LAUNCHERS} | {"TRAFO_JOB_TOKEN": ranks.TOKEN}
    each = list(pods(document))
    alone = [word for word in each[0][1]]
    for flag in ("--nodes", "--node-rank", "--master"):
        if flag in alone:
            del alone[alone.index(flag):alone.index(flag) + 2]
    subprocess.run(cluster[0].command(*command(alone, f"{name}-alone")), env=clean, check=True, capture_output=True)
    processes = [subprocess.Popen(cluster[number].command(*command(words, name)), env={**clean, **environment}, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT) for number, (environment, words) in enumerate(each)]
    said = [process.communicate(timeout=120)[0] for process in processes]
    if any(process.returncode for process in processes):
        return fail(f"the pods of {name} end with {[process.returncode for process in processes]}: {said}")
    runs = ranks.Runs(program, None, folder)
    runs.compare(f"{name}-alone", name, 6, f"the pods of {name}")
    print(f"manifests: {name}: {len(each)} pods train together: {re.search('[0-9]+ (processes|nodes).*?:', said[0])[0]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--crd")
    arguments = parser.parse_args()
    try:
        import kubernetes_validate  # noqa: F401
        import yaml
    except ImportError as error:
        print(f"manifests: skipped: {error}")
        return namespace_hosts.SKIPPED
    namespace_hosts.enter("manifests")
    documents = [document for path in sorted(FOLDER.glob("*.yaml")) for document in yaml.safe_load_all(path.read_text())]
    jobs = [document for document in documents if document["kind"] in ("Job", "PyTorchJob")]
    if len(jobs) < 2:
        fail(f"{FOLDER} has {len(jobs)} jobs")
    check_schemas(documents, arguments.crd)
    with tempfile.TemporaryDirectory(prefix="manifests-") as name:
        folder = pathlib.Path(name).resolve()
        ranks.write_corpus(folder)
        for part in ("train", "valid"):
            for side, language in (("a", "de"), ("b", "en")):
                (folder / f"{part}.{side}").rename(folder / f"{part}.{language}")
        cluster = namespace_hosts.Cluster(4, folder, aliases={"trafo-0.trafo": 0, "trafo-master-0": 0})
        for job in jobs:
            run_pods(job, str(pathlib.Path(arguments.program).resolve()), cluster, folder)
    print(f"manifests: {len(ranks.failures)} failures")
    return 1 if ranks.failures else 0


if __name__ == "__main__":
    sys.exit(main())
