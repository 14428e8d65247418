import js from '@eslint/js';
import svelte from 'eslint-plugin-svelte';
import globals from 'globals';
import svelte_config from '../svelte.config.js';

// Types are the business of svelte-check; this finds what no type shows: unused names, keyless lists, effects that set state.
export default [
  { ignores: ['**/dist/', '**/node_modules/', '**/*.d.ts'] },
  js.configs.recommended,
  ...svelte.configs['flat/recommended'],
  {
    languageOptions: { globals: { ...globals.browser, ...globals.node } },
    rules: {
      'no-unused-vars': ['error', { argsIgnorePattern: '^_', varsIgnorePattern: '^_', ignoreRestSiblings: true }],
      eqeqeq: 'error',
      'prefer-const': 'off', // $props() and $state() are declared with let
      'no-var': 'error',
      'object-shorthand': 'error',
      'no-empty': ['error', { allowEmptyCatch: true }],
      'no-control-regex': 'off', // output of replicas has control characters
      'svelte/no-useless-mustaches': 'off', // {' '} keeps a space
      'svelte/no-navigation-without-resolve': 'off', // there is no SvelteKit
    },
  },
  { files: ['**/*.svelte', '**/*.svelte.js'], languageOptions: { parserOptions: { svelteConfig: svelte_config } } },
];
