# Two silos and a target on this machine; with tunnels, each command could run on a machine of its own.
set -eu
folder=$(mktemp -d)/federation
python -m zoo_nvflare provision "$folder" --config ../experiment.yaml --sources book film
python -m zoo_nvflare silo "$folder/book" > "$folder/book.log" 2>&1 & silos=$!
python -m zoo_nvflare silo "$folder/film" > "$folder/film.log" 2>&1 & silos="$silos $!"
trap 'kill $silos' EXIT INT TERM
python -m zoo_nvflare target "$folder/target" --request first "$@"
