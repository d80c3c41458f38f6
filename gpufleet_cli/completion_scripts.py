"""What each shell evaluates to have our completion; `completions/` and `--install-completion` are these.

Typer's own scripts start the program twice for each TAB in fish, and offer nothing at the first one in zsh.
"""

BASH = """\
_gpufleet_completion() {
    local IFS=$'\\n'
    COMPREPLY=( $( env COMP_WORDS="${COMP_WORDS[*]}" \\
                   COMP_CWORD=$COMP_CWORD \\
                   _GPUFLEET_COMPLETE=complete_bash "$1" ) )
    return 0
}

complete -o default -F _gpufleet_completion gpufleet
"""

ZSH = """\
#compdef gpufleet

_gpufleet_completion() {
  eval "$(env _TYPER_COMPLETE_ARGS="${(j: :)words[1,CURRENT-1]} $PREFIX" \\
    _GPUFLEET_COMPLETE=complete_zsh gpufleet)"
}

# Found by compinit, this file is the body of the function, and the first TAB is waiting already.
if [[ $funcstack[1] == _gpufleet ]]; then
  _gpufleet_completion "$@"
else
  compdef _gpufleet_completion gpufleet
fi
"""

FISH = """\
function __gpufleet_complete
    set -l line (commandline -cp | string collect)
    set -l found (env _GPUFLEET_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args \\
        _TYPER_COMPLETE_ARGS="$line" gpufleet)
    if set -q found[1]
        printf '%s\\n' $found
    end
    if not set -q found[1]; or string match -qr '^\\s*\\S+ (triage|ranks|dumps|explain) ([^-]\\S*)?$' -- "$line"
        __fish_complete_path (commandline -ct)
    end
end

complete --command gpufleet --no-files --keep-order --arguments '(__gpufleet_complete)'
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
