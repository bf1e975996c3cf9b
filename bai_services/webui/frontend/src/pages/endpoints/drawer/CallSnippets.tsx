import { useState } from 'react';
import { Flex, Segmented, Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { curlOf, hasOpenAiApi, pythonOf, type Called } from '../snippets';

type Kind = 'curl' | 'python';

/** Examples of calls that the user can copy. */
export function CallSnippets(called: Called) {
  const { t } = useTranslation();
  const [chosen, setChosen] = useState<Kind>();
  const kind = chosen ?? (hasOpenAiApi(called.variant) ? 'python' : 'curl');
  const text = kind === 'curl' ? curlOf(called) : pythonOf(called);
  return (
    <section style={{ marginBlockStart: 24 }}>
      <Typography.Title level={5}>{t('endpoints.call')}</Typography.Title>
      <Flex wrap gap="small" align="center" justify="space-between">
        <Segmented<Kind>
          aria-label={t('endpoints.call')}
          value={kind}
          onChange={setChosen}
          options={[
            { value: 'curl', label: 'curl' },
            { value: 'python', label: 'Python (openai)' }
          ]}
        />
        <Typography.Text copyable={{ text, tooltips: [t('endpoints.copy-call'), ''] }}>
          {t('endpoints.copy-call')}
        </Typography.Text>
      </Flex>
      <pre tabIndex={0} aria-label={t('endpoints.call')} style={{ overflowX: 'auto' }}>
        {text}
      </pre>
      {!called.isPublic && (
        <Typography.Text type="secondary">{t('endpoints.call-token')}</Typography.Text>
      )}
    </section>
  );
}
