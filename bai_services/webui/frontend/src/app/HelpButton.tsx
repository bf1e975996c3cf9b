import { QuestionCircleOutlined } from '@ant-design/icons';
import { Button } from 'antd';
import { useLocation } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { manualUrl } from './pages';

/** Opens the chapter of the manual about the current page, in a new tab. */
export function HelpButton() {
  const { t } = useTranslation();
  const path = useLocation({ select: location => location.pathname });
  return (
    <Button
      type="text"
      icon={<QuestionCircleOutlined />}
      aria-label={t('shell.manual')}
      href={manualUrl(path)}
      target="_blank"
    />
  );
}
