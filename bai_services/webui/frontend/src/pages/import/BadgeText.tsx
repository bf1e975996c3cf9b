import { Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { config } from '../../config';
import { htmlBadge, linkOf, markdownBadge } from './badge';

interface BadgeTextProps {
  source: { repo: string; branch: string; path: string; urlpath: string };
}

/** Links to this page with the source of the form, for a README or a web page. */
export function BadgeText({ source }: BadgeTextProps) {
  const { t } = useTranslation();
  if (source.repo === '') {
    return t('folder-imports.badge-empty');
  }
  const link = linkOf(source, `${window.location.origin}${config.base}/import`);
  const text = t('folder-imports.badge-text', { brand: config.brand });
  const snippets = {
    link,
    markdown: markdownBadge(link, text),
    html: htmlBadge(link, text)
  };
  return (
    <>
      <p>{t('folder-imports.badge-help')}</p>
      {Object.entries(snippets).map(([kind, snippet]) => (
        <div key={kind} style={{ marginBottom: 8 }}>
          <div>{t(`folder-imports.badge-${kind}`)}</div>
          <Typography.Text code copyable style={{ overflowWrap: 'anywhere' }}>
            {snippet}
          </Typography.Text>
        </div>
      ))}
    </>
  );
}
