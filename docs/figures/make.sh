#!/usr/bin/env bash
# Draws the figures that README.md shows. They are of an untrained model and say so; another one:
#     MODEL="--model dino_vits8" docs/figures/make.sh
set -euo pipefail
cd "$(dirname "$0")/../.."

attnviz=${ATTNVIZ:-.venv/bin/attnviz}
read -ra model <<<"${MODEL:---random-weights}"

draw() {
    "$attnviz" "$@" "${model[@]}" --dpi 120 --out docs/figures --quiet
}

draw heads sample_images/cat.jpg --threshold 0.6
draw layers sample_images/cat.jpg
draw rollout sample_images/coffee.jpg
draw patch sample_images/astronaut.jpg --xy 240,130 --xy 120,60 --xy 400,220 --xy 200,400
draw score sample_images/rocket.jpg --keep-ratio 0.5
