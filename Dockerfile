# Trafo in containers. docs/guide/deployment.md says what each image is for and what was tried.
#
#   docker build --target test .                                                  builds and runs all tests
#   docker build --target cli -t translate-train .                                the trainer
#   translate-train quantize -m RUN -o model                                      an int8 model, in this folder
#   docker build --target server --build-arg MODEL=model -t translate-server .    a translation server with it
#   docker build --target learning --build-arg MODEL=base -t learning-service .   a service that learns, on the base in this folder; with
#                                                                                 --build-arg CORE=go the one in Go
#
# tests/tools/image_test.py builds and runs cli and server, tests/learning/check_image.py learning. --build-arg CMAKE_OPTIONS=-D... changes how the library is built.
#
# Debian 12, or a mirror of it: --build-arg BASE=registry.example/debian:12-slim
ARG BASE=debian:12-slim
ARG CORE=rust

FROM ${BASE} AS build
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/*
WORKDIR /trafo
COPY scripts/install-dependencies.sh scripts/
RUN scripts/install-dependencies.sh && rm -rf /var/lib/apt/lists/*
# What the library is made of: another model, test or document compiles nothing again.
COPY CMakeLists.txt CMakePresets.json LICENSE ./
COPY apps apps
COPY capi capi
COPY cmake cmake
COPY engine engine
COPY examples/CMakeLists.txt examples/
COPY examples/demo examples/demo
COPY scripts scripts
COPY bindings/rust/Cargo.lock bindings/rust/
COPY bindings/go/trafo/go.mod bindings/go/trafo/
ARG CMAKE_OPTIONS=
ARG LANG=C.UTF-8
ARG CCACHE_DIR=/var/cache/ccache
RUN scripts/build.sh $CMAKE_OPTIONS

FROM build AS test
COPY . .
RUN scripts/test.sh

FROM build AS packages
# The time of all files in the packages.
ARG SOURCE_DATE_EPOCH=0
RUN SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH scripts/package.sh

FROM ${BASE} AS cli
COPY --from=packages /trafo/build/release/packages/trafo_*.deb /tmp/
RUN apt-get update && apt-get install -y --no-install-recommends /tmp/trafo_*.deb && rm -rf /var/lib/apt/lists/* /tmp/trafo_*.deb
WORKDIR /work
USER 65532:65532
ENTRYPOINT ["translate-train"]
CMD ["--help"]

FROM build AS server-build
RUN apt-get update && apt-get install -y --no-install-recommends golang-go && rm -rf /var/lib/apt/lists/*
COPY bindings/go bindings/go
RUN PATH="$(scripts/install-go.sh):$PATH" && go -C bindings/go/trafo build -trimpath -o /translate-server ./examples/translate-server

FROM ${BASE} AS server
RUN apt-get update && apt-get install -y --no-install-recommends libhwy1 libsentencepiece0 libstdc++6 zlib1g && rm -rf /var/lib/apt/lists/*
COPY --from=server-build /translate-server /usr/local/bin/
ARG MODEL=model
COPY ${MODEL}/model.safetensors ${MODEL}/vocab.spm /model/
EXPOSE 8080
USER 65532:65532
ENTRYPOINT ["translate-server", "-listen", ":8080", "-model", "/model", "-device", "cpu", "-drain", "5s", "-grace", "20s"]

FROM build AS learning-rust
RUN scripts/install-dependencies.sh --bindings && rm -rf /var/lib/apt/lists/*
COPY bindings/rust bindings/rust
COPY examples/learning-service examples/learning-service
RUN TRAFO_LIB_DIR=/trafo/build/release cargo build --release --locked --manifest-path examples/learning-service/Cargo.toml && \
    cp examples/learning-service/target/release/learning-service /

FROM build AS learning-go
COPY bindings/go bindings/go
COPY examples/learning-service examples/learning-service
RUN PATH="$(scripts/install-go.sh):$PATH" && go -C examples/learning-service build -trimpath -o /learning-service ./go

FROM learning-${CORE} AS learning-build

FROM ${BASE} AS learning
RUN apt-get update && apt-get install -y --no-install-recommends libhwy1 libsentencepiece0 libstdc++6 zlib1g && rm -rf /var/lib/apt/lists/*
COPY --from=learning-build /learning-service /usr/local/bin/
# docs/guide/learning-service.md says which files it has.
ARG MODEL=base
COPY ${MODEL} /base/
RUN mkdir /data && chown 65532:65532 /data
VOLUME /data
EXPOSE 8080
USER 65532:65532
# Clients must send the token of the variable LEARNING_SERVICE_TOKEN.
ENTRYPOINT ["learning-service", "--address", "0.0.0.0:8080", "--base", "/base", "--data", "/data"]
