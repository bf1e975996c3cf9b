import js from '@eslint/js';
import typescript from 'typescript-eslint';

export default typescript.config(
  { ignores: ['lib/', 'node_modules/', 'style/'] },
  js.configs.recommended,
  {
    files: ['**/*.ts', '**/*.tsx'],
    extends: [typescript.configs.strictTypeChecked],
    languageOptions: {
      parserOptions: { project: './tests/tsconfig.json', tsconfigRootDir: import.meta.dirname }
    },
    rules: {
      // allows event handlers that consist of one call
      '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true }],
      // allows numbers in template strings
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }],
      // the promise of node's `test` need not be awaited
      '@typescript-eslint/no-floating-promises': ['error', { allowForKnownSafeCalls: ['test'] }]
    }
  }
);
