function __gpufleet_complete
    set -l line (commandline -cp | string collect)
    set -l found (env _GPUFLEET_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args \
        _TYPER_COMPLETE_ARGS="$line" gpufleet)
    if set -q found[1]
        printf '%s\n' $found
    end
    if not set -q found[1]; or string match -qr '^\s*\S+ (triage|ranks|dumps|explain) ([^-]\S*)?$' -- "$line"
        __fish_complete_path (commandline -ct)
    end
end

complete --command gpufleet --no-files --keep-order --arguments '(__gpufleet_complete)'
