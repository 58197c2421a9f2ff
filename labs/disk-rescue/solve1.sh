printf 'label: gpt\n,,L\n' | sfdisk /dev/loop7
