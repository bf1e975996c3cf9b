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
      // a handler that is one call
      '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true }],
      // numbers in texts are meant
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }],
      // node's own `test` returns a promise that nobody awaits
      '@typescript-eslint/no-floating-promises': ['error', { allowForKnownSafeCalls: ['test'] }]
    }
  }
);
