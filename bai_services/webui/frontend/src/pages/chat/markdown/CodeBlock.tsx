import { useEffect, useState } from 'react';
import { Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import type { CodePart } from './highlight';

/** Maximum length of code with syntax highlighting, because the parsers run in the page. */
const MAX_HIGHLIGHTED = 20_000;

interface CodeBlockProps {
  text: string;
  language: string | undefined;
}

/** A block of code with colors and a button to copy it. */
export function CodeBlock({ text, language }: CodeBlockProps) {
  const { t } = useTranslation();
  const parts = useHighlighted(text, language);
  return (
    <div className="bai-code">
      <div className="bai-code-head">
        <span>{language?.slice(0, 30)}</span>
        <Typography.Text copyable={{ text, tooltips: [t('chat.copy-code'), ''] }} />
      </div>
      <pre tabIndex={0} aria-label={t('chat.code')}>
        <code>
          {parts
            ? parts.map((part, index) => (
                <span key={index} className={part.classes}>
                  {part.text}
                </span>
              ))
            : text}
        </code>
      </pre>
    </div>
  );
}

/** The parts of the code; undefined if it has no colors, or they belong to an earlier text. */
function useHighlighted(text: string, language: string | undefined): CodePart[] | undefined {
  const [found, setFound] = useState<{ text: string; parts: CodePart[] | undefined }>();
  useEffect(() => {
    if (!language || text.length > MAX_HIGHLIGHTED) {
      return;
    }
    let isCurrent = true;
    void import('./highlight')
      .then(module => module.highlighted(text, language))
      .then(
        parts => {
          if (isCurrent) {
            setFound({ text, parts });
          }
        },
        // Without its parser, the code has no colors.
        () => undefined
      );
    return () => {
      isCurrent = false;
    };
  }, [text, language]);
  return found?.text === text ? found.parts : undefined;
}
