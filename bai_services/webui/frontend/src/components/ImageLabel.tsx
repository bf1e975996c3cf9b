import { CodeOutlined, PythonOutlined } from '@ant-design/icons';
import { Flex, Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { Tag } from './Tag';
import { partsOfImage } from './imageName';

/** Icon of an image: the Python icon if the name contains a Python product, else a general one. */
export const ImageIcon = ({ name }: { name: string }) =>
  /python|pytorch|tensorflow|jupyter/i.test(name) ? (
    <PythonOutlined aria-hidden />
  ) : (
    <CodeOutlined aria-hidden />
  );

/** An image: icon, environment, version, architecture and tags, and a button to copy its name. */
export function ImageLabel({ name, architecture }: { name: string; architecture: string }) {
  const { t } = useTranslation();
  const { title, version, tags } = partsOfImage(name);
  return (
    <Flex wrap gap={4} align="center">
      <ImageIcon name={name} />
      <Typography.Text
        copyable={{ text: name, tooltips: [t('images.copy-name'), ''] }}
        title={name}
      >
        {[title, version].filter(Boolean).join(' ')}
      </Typography.Text>
      {[architecture, ...tags].filter(Boolean).map(tag => (
        <Tag key={tag}>{tag}</Tag>
      ))}
    </Flex>
  );
}
